# %% [markdown]
# # My data
#
# Rows with a question and what a reward needs become a data set, a reward is a function, and a run has a held-out
# score. The model is random and tiny: replace `model` by a folder of `save_pretrained` or a name of the hub. [Your
# data](../your-data.md) has the formats.

# %%
import json
from pathlib import Path

import rlm_plugins as rlm

rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(2, 8) for b in range(1, 4)]
Path("questions.jsonl").write_text("\n".join(map(json.dumps, rows)))


def share(completions, answer):
    """Share of the answer's digits in the completion."""
    return [sum(d in text for d in right) / len(right) for text, right in zip(completions, answer, strict=True)]


recipe = {
    "model": {"name": "scratch", "hidden": 16, "heads": 2, "intermediate": 16},
    "environment": {"name": "dataset", "path": "questions.jsonl", "test_rows": 4},
    "rewards": [share],
    "algorithm": "dr_grpo",
    "trainer": {"max_steps": 2, "num_generations": 4, "per_device_train_batch_size": 8, "max_completion_length": 6},
    "evaluation": {"metric": "share", "max_new_tokens": 6, "every": 1},
}

# %% [markdown]
# ## Before training
#
# `check` reads the rows and the settings. A wrong key or column is an error with its place.

# %%
checked = rlm.check(recipe)
checked

# %%
try:
    rlm.check(recipe, {"environment.columns": {"answer": "solution"}})
except rlm.errors.RlmError as error:
    mistake = str(error)
mistake

# %% [markdown]
# ## Train, and look at what was rewarded

# %%
run = rlm.train(recipe, out="runs/my_data")
run

# %%
run.samples
