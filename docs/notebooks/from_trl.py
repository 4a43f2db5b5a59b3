# %% [markdown]
# # From a TRL script to an algorithm of your own
#
# The script trains a tiny model with TRL's arguments. Then one import changes, then `algorithm=`, then one symbol.
# The model is random and the runs have a few steps: the notebook shows the way, not a result.

# %%
from pathlib import Path

import torch
from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig

import rlm_plugins as rlm

tiny = rlm.part("model", "scratch", hidden=16, heads=2, intermediate=16)()
examples = rlm.part("environment", "addition", digits=2, test_rows=4)().train
dataset = Dataset.from_list([dict(examples[i]) for i in range(32)])
folder = Path("runs/notebook")


def share(completions, answer, **columns):
    """Share of the answer's digits in the completion."""
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
    return [sum(digit in text for digit in right) / len(right) for text, right in zip(texts, answer, strict=True)]


def arguments(**changes):
    """The arguments of TRL's GRPOTrainer."""
    settings = {
        "output_dir": str(folder),
        "max_steps": 2,
        "per_device_train_batch_size": 8,
        "num_generations": 4,
        "max_completion_length": 6,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "bf16": False,
        "use_cpu": True,
        "disable_tqdm": True,
    }
    args = GRPOConfig(**settings | changes)
    return {
        "model": tiny.load(),
        "reward_funcs": share,
        "args": args,
        "train_dataset": dataset,
        "processing_class": tiny.tokenizer(),
        "peft_config": LoraConfig(r=4, target_modules="all-linear"),
    }


# %% [markdown]
# ## The script, with one import changed
#
# `from trl import GRPOTrainer` becomes the line below. The weights are TRL's.

# %%
from rlm_plugins import GRPOTrainer

trainer = GRPOTrainer(**arguments())
trainer.train()
trainer.equation.policy_loss

# %% [markdown]
# ## Another algorithm

# %%
trainer = GRPOTrainer(**arguments(), algorithm="cispo")
trainer.train()
rlm.explain("cispo")

# %% [markdown]
# ## An advantage of your own, in five lines


# %%
def median_baseline(rewards, group):
    """Â = r − median of the group."""
    return rewards - torch.stack([rewards[group == g].median() for g in group])


trainer = GRPOTrainer(**arguments(), algorithm={"name": "dapo", "advantage": median_baseline, "filters": []})
trainer.train()

# %% [markdown]
# ## PPO, with a critic

# %%
from rlm_plugins import PPOTrainer

trainer = PPOTrainer(**arguments(), critic="shared")
trainer.train()
curve = [line["critic/value"] for line in trainer.state.log_history if "critic/value" in line]

# %% [markdown]
# ## A whole experiment, and its curves

# %%
run = rlm.train(
    {
        "model": {"name": "scratch", "hidden": 16, "heads": 2, "intermediate": 16},
        "environment": {"name": "addition", "digits": 2, "test_rows": 4},
        "rewards": [share],
        "algorithm": {"name": "dapo", "advantage": median_baseline, "filters": []},
        "trainer": {"max_steps": 2, "per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 6},
        "evaluation": {"max_new_tokens": 6, "every": 1},
    },
    out=folder / "experiment",
)
run.metrics
