"""25 kinds of run: each has other state in its checkpoints, or uses it in another way."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml
from fault_cases import recipe

STEPS = 12
"""Four steps an epoch."""
LORA = {"r": 4, "target_modules": "all-linear"}
REWARDS = '''
import random
from rlm_plugins import hookimpl

def chance(completion_ids):
    return [float(ids[0] % 3) + 0.5 * (ids[-1] % 2) for ids in completion_ids]

class Memory:
    """Pays less each time."""

    def __init__(self):
        self.pay, self.rng = 1.0, random.Random(3)

    def __call__(self, completion_ids):
        self.pay *= 0.9
        return [self.pay * (ids[0] % 3 + self.rng.random()) for ids in completion_ids]

    def state_dict(self):
        return {"pay": self.pay, "rng": repr(self.rng.getstate())}

    def load_state_dict(self, state):
        self.pay = state["pay"]
        self.rng.setstate(eval(state["rng"]))

@hookimpl
def rlm_rewards():
    return {"chance": chance, "memory": Memory}
'''
KINDS: dict[str, dict[str, Any]] = {
    "full": {},
    "lora": {"model": {"lora": LORA}},
    "lora with dropout": {"model": {"lora": {**LORA, "lora_dropout": 0.3}}},
    "shared critic": {"algorithm": "ppo", "model": {"lora": LORA}},
    "own critic": {"algorithm": "ppo"},
    "vapo": {"algorithm": "vapo", "model": {"lora": LORA}},
    "dapo": {"algorithm": "dapo", "rewards": [{"name": "chance", "as": "accuracy"}]},
    "dr_grpo": {"algorithm": "dr_grpo"},
    "rloo": {"algorithm": "rloo"},
    "gspo": {"algorithm": "gspo"},
    "cispo": {"algorithm": "cispo"},
    "opo": {"algorithm": "opo"},
    "gmpo": {"algorithm": "gmpo"},
    "reinforce_pp": {"algorithm": "reinforce_pp"},
    "kl penalty": {"algorithm": {"name": "grpo", "penalties": [{"name": "kl", "beta": 0.1}]}},
    "entropy bonus": {"algorithm": {"name": "grpo", "penalties": [{"name": "entropy", "beta": 0.01}]}},
    "sft": {"algorithm": "sft", "rewards": [], "sft": True},
    "sft with lora": {"algorithm": "sft", "rewards": [], "sft": True, "model": {"lora": LORA}},
    "two updates a batch": {"trainer": {"num_iterations": 2}},
    "two steps a generation": {"trainer": {"steps_per_generation": 2, "per_device_train_batch_size": 4}},
    "accumulation": {"trainer": {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}},
    "checkpointed activations": {"trainer": {"gradient_checkpointing": True}},
    "cosine with warm-up": {"trainer": {"lr_scheduler_type": "cosine", "warmup_steps": 3}},
    "adafactor": {"trainer": {"optim": "adafactor"}},
    "reward with memory": {"rewards": ["memory"]},
}


def kind_of_run(folder: Path, kind: str, processes: int = 1) -> Path:
    """Write the recipe of a kind, with a checkpoint after every step; the batch is that of all processes."""
    changes = KINDS[kind]
    file = recipe(folder, max_steps=STEPS, save_total_limit=None, **changes.get("trainer", {}))
    document = yaml.safe_load(file.read_text())
    del document["evaluation"], document["trainer"]["save_total_limit"]
    document["model"] |= changes.get("model", {})
    document |= {key: changes[key] for key in ("algorithm", "rewards") if key in changes}
    document.setdefault("plugins", {"load": ["parts.py"]})
    if "rewards" not in changes:
        document["rewards"] = ["chance"]
    if changes.get("sft"):
        del document["trainer"]["num_generations"], document["trainer"]["max_completion_length"]
        document["trainer"]["per_device_train_batch_size"] = 2
    document["trainer"]["per_device_train_batch_size"] //= processes
    (folder / "parts.py").write_text(REWARDS)
    file.write_text(yaml.safe_dump(document))
    return file


def interrupted(whole: Path, folder: Path, step: int) -> Path:
    """Copy a finished run in the state right after a step, and return the copy."""
    shutil.copytree(whole, folder)
    (stage,) = folder.glob("01-*")
    for path in stage.iterdir():
        number = path.name.partition("checkpoint-")[2]
        if path.is_file():
            path.unlink()
        elif not number or int(number) > step:
            shutil.rmtree(path)
    (folder / "summary.json").unlink()
    return folder
