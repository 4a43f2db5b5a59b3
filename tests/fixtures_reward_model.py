"""The pipeline of recipes/pipelines/rlhf.yaml, shortened to seconds, for the tests of the reward model."""

from __future__ import annotations

from pathlib import Path

import torch

from rlm_plugins import recipe
from rlm_plugins.registry import Registry
from rlm_plugins.run.folder import Run
from rlm_plugins.run.train import train

PIPELINE = Path(__file__).parents[1] / "recipes" / "pipelines" / "rlhf.yaml"
SHORT = (
    "environment.train_rows=64",
    "environment.test_rows=16",
    "stages.0.model.hidden=16",
    "stages.0.model.heads=2",
    "stages.0.model.intermediate=32",
    "stages.0.trainer.max_steps=4",
    "stages.0.trainer.warmup_steps=0",
    "stages.0.trainer.save_strategy='no'",
    "stages.0.evaluation.every=0",
    "stages.1.model.lora.r=2",
    "stages.1.trainer.max_steps=6",
    "stages.1.trainer.per_device_train_batch_size=8",
    "stages.1.evaluation.every=0",
    "stages.2.model.lora.r=2",
    "stages.2.critic.warmup_steps=1",
    "stages.2.trainer.max_steps=2",
    "stages.2.trainer.per_device_train_batch_size=8",
    "stages.2.trainer.max_completion_length=6",
    "stages.2.evaluation.every=0",
)


def run(folder: Path, *changes: str) -> Run:
    """Train the pipeline: SFT, reward model, PPO."""
    torch.set_num_threads(1)
    return train(recipe.load(PIPELINE, [*SHORT, *changes]), Registry(), folder)
