# %% [markdown]
# # Look at a run
#
# A run is a folder. This one learns nothing, because its model is random and its reward is never earned: the
# diagnosis says so.

# %%
import rlm_plugins as rlm

run = rlm.train(
    {
        "model": {"name": "scratch", "hidden": 16, "heads": 2, "intermediate": 16},
        "environment": {"name": "addition", "digits": 2, "test_rows": 4},
        "rewards": ["accuracy"],
        "algorithm": "grpo",
        "trainer": {"max_steps": 6, "num_generations": 4, "per_device_train_batch_size": 8, "max_completion_length": 6},
        "evaluation": {"max_new_tokens": 6, "every": 3},
    },
    out="runs/look",
)
run.summary

# %% [markdown]
# ## Numbers and samples
#
# A table if pandas is installed, else a list. `rlm.explain` has the formula of a metric and what to expect of it.

# %%
run.metrics

# %%
rlm.explain("reward_std")

# %%
run.samples

# %% [markdown]
# ## Why does it not learn?
#
# The same as `rlm why runs/look`: findings with their evidence, and an override to try.

# %%
from rlm_lab.why import why

findings = [finding for stage in why(run.folder) for finding in stage["findings"]]
for finding in findings:
    print(finding["severity"], finding["name"], "-", finding["evidence"], "Try:", finding["remedy"])

# %% [markdown]
# ## One page with everything
#
# Curves, groups, and each token colored by its share of the gradient; `rlm view runs/look` writes it as a file.

# %%
page = run.view()
page
