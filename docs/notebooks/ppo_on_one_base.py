# %% [markdown]
# # PPO on one base
#
# Policy and critic are two adapters of one frozen model; the reference policy is the model with its adapters switched
# off. So PPO holds one copy of the weights. The model is tiny and the runs are short: the notebook shows the way.

# %%
import json
from pathlib import Path

import rlm_plugins as rlm

folder = Path("runs/ppo")
sums = {"name": "addition", "digits": 2, "test_rows": 8, "thinking": False}

# %% [markdown]
# ## A base
#
# Demonstrations first: a random model never earns a reward.

# %%
demonstrations = {
    "model": {"name": "scratch", "hidden": 32, "heads": 2, "intermediate": 32, "layers": 1},
    "environment": sums,
    "algorithm": "sft",
    "trainer": {"max_steps": 40, "per_device_train_batch_size": 16, "learning_rate": 1e-2},
}
start = rlm.train(demonstrations, out=folder / "base")
base = str(next(start.folder.glob("*-sft")) / "model")

# %% [markdown]
# ## PPO with a critic
#
# The reward pays the share of the answer's digits, so a base that is mostly wrong earns something, too.


# %%
def digits(completions, answer):
    """Share of the digits of the answer that the completion has at their places."""
    written = [text.partition("<answer>")[2].partition("<")[0] for text in completions]
    return [
        sum(x == y for x, y in zip(text, right, strict=False)) / len(right)
        for text, right in zip(written, answer, strict=True)
    ]


def recipe(kind):
    """A recipe of PPO whose critic is `shared`, `head` or `separate`."""
    return {
        "model": {"name": base, "lora": {"r": 8, "target_modules": "all-linear"}},
        "environment": sums,
        "rewards": [digits],
        "algorithm": "ppo",
        "critic": {"kind": kind, "learning_rate": 1e-2},
        "trainer": {
            "max_steps": 6,
            "num_generations": 4,
            "per_device_train_batch_size": 16,
            "max_completion_length": 24,
            "learning_rate": 1e-3,
        },
        "evaluation": {"every": 3},
    }


ppo = rlm.train(recipe("shared"), out=folder / "shared")
ppo.summary

# %% [markdown]
# ## Does the critic learn?
#
# An explained variance of 0 is that of the mean return, 1 that of a perfect critic.

# %%
lines = [json.loads(line) for line in (ppo.folder / "metrics.jsonl").read_text().splitlines()]
explained = [line["critic/explained_variance"] for line in lines if "critic/explained_variance" in line]
explained

# %%
rlm.explain("critic/explained_variance")

# %% [markdown]
# ## What one base saves
#
# Bytes of the critic's weights in the plan of `rlm check`; a step that holds all of them is measured in
# `benchmarks/results/ppo_memory.md`.

# %%
weights = {kind: rlm.check(recipe(kind))[0]["memory"]["always"]["critic weights"] for kind in ("shared", "separate")}
weights
