"""Small runs for fault tests: one per kind of checkpoint, and the comparison of a resumed run with a whole one."""

from __future__ import annotations

import gc
import json
import shutil
import unittest.mock
from pathlib import Path
from typing import Any

import yaml

import rlm_plugins.trainer  # noqa: F401  # what is imported stays: see conftest.py
from rlm_plugins.durable.files import damages
from rlm_plugins.run import report
from rlm_plugins.run.launch import launch
from rlm_plugins.run.train import valid_checkpoint

gc.freeze()
KINDS: dict[str, dict[str, Any]] = {
    "adapter": {"model": {"lora": {"r": 4, "target_modules": "all-linear"}}},
    "full": {},
    "critic": {"algorithm": {"name": "ppo"}, "model": {"lora": {"r": 4, "target_modules": "all-linear"}}},
}
"""Kind of checkpoint → what differs from `recipe`."""


def recipe(folder: Path, kind: str = "full", **trainer: Any) -> Path:
    """Write a recipe that trains within seconds and saves a checkpoint after every step."""
    document: dict[str, Any] = {
        "environment": {"name": "addition", "digits": 2, "train_rows": 8, "test_rows": 4},
        "rewards": [{"name": "length", "limit": 8}],
        "evaluation": {"metric": "length", "rows": 2, "max_new_tokens": 4},
        "model": {"name": "scratch", "hidden": 16, "heads": 2, "intermediate": 16},
        "algorithm": {"name": "grpo", "penalties": []},
        "trainer": {"max_steps": 4, "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 4,
            "learning_rate": 1e-3, "save_steps": 1, "gradient_checkpointing": False, **trainer},
    }  # fmt: skip
    changes = KINDS[kind]
    document["model"] |= changes.get("model", {})
    document["algorithm"] = changes.get("algorithm", document["algorithm"])
    file = folder / f"{kind}.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def run(folder: Path, kind: str = "full", **trainer: Any) -> Path:
    """Train the recipe of a kind to its end in `folder / kind`, and return the run folder."""
    return launch(recipe(folder, kind, **trainer), [], out=folder / kind).folder


def unfinished(whole: Path, folder: Path) -> Path:
    """Copy a finished run, keep only the checkpoints of its last stage, and return the copy."""
    shutil.copytree(whole, folder)
    (stage,) = [path for path in folder.iterdir() if path.name.startswith("01-")]
    for result in ("adapter", "model", "critic"):
        shutil.rmtree(stage / result, ignore_errors=True)
    (stage / "done").unlink()
    for file in ("summary.json", "curve.png"):
        (folder / file).unlink(missing_ok=True)
    return folder


def resume(folder: Path, *overrides: str) -> Path:
    """Resume a run with its own recipe, without the picture, which takes a sixth of its time."""
    with unittest.mock.patch.object(report, "learning_curve", return_value=False):
        return launch(folder, list(overrides), resume=True).folder


def weights(folder: Path) -> dict[str, bytes]:
    """Return the trained weights of a run: name of the file → its bytes."""
    found = [*folder.glob("01-*/adapter/*"), *folder.glob("01-*/model/*"), *folder.glob("01-*/critic/*")]
    return {str(file.relative_to(folder)): file.read_bytes() for file in found if file.suffix == ".safetensors"}


def step_of(run: Path) -> int:
    """Return the last logged step."""
    file = run / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return max((json.loads(line)["step"] for line in lines if line.endswith("}")), default=0)


def check_last_save(run: Path) -> None:
    """Check that the newest checkpoint is whole, and that no checkpoint is damaged or missing."""
    for stage in run.glob("01-*"):
        reported: list[str] = []
        found, names = valid_checkpoint(stage, reported.append), sorted(stage.glob("checkpoint-?"))
        assert not reported
        assert found == (names[-1] if names else None)
        assert found is None or not damages(found)
