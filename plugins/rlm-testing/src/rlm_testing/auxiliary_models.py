"""Helpers for tests of parts that train an auxiliary model: a substitute for it, and a run that is resumed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

TINY = {"name": "scratch", "layers": 1, "hidden": 32, "heads": 2, "intermediate": 64}
FOUR_STEPS = {"max_steps": 4, "per_device_train_batch_size": 16, "save_strategy": "steps", "save_steps": 2}


class RecordingLM:
    """Substitute for an `AuxiliaryLM` whose log-probs are given, and which records its training steps.

    Args:
        logp: Log-probs (sequences, tokens) of every training step; its `grad` has their sum of gradients.
        norm: Norm of the gradient that a step reports.

    Attributes:
        is_active: True while the part samples from it.
        steps: Number of training steps.
        prompts, completions: Token ids of the last step.
        value: Loss of the last step.
    """

    def __init__(self, logp: torch.Tensor, norm: float = 0.0) -> None:
        self.logp, self.norm = logp.requires_grad_(), norm
        self.is_active, self.steps = False, 0
        self.prompts: list[list[int]] = []
        self.completions: list[list[int]] = []

    @contextmanager
    def active(self) -> Iterator[None]:
        """Set `is_active` inside the context."""
        self.is_active = True
        yield
        self.is_active = False

    def train_step(self, _: Any, prompts: Any, completions: Any, width: int, loss: Any, step: int) -> float:
        """Compute loss and gradient for `logp`, 0 after the end of each completion."""
        self.prompts, self.completions, self.steps = prompts, completions, self.steps + 1
        mask = torch.tensor([[t < len(ids) for t in range(width)] for ids in completions])
        self.value = loss(self.logp[:, :width].where(mask, 0.0), list(range(len(completions))))
        self.value.backward()
        return self.norm


def tiny_recipe(recipe: Path, folder: Path, **sections: Mapping[str, Any]) -> Path:
    """Write the last stage of a recipe as a recipe of its own: a tiny untrained model, four steps, two checkpoints.

    Args:
        recipe: A recipe with stages.
        folder: For the file.
        sections: Further keys of its sections, as ``trainer={"max_completion_length": 1}``.
    """
    import yaml

    body = yaml.safe_load(recipe.read_text())
    stage = {key: x for key, x in body.items() if key not in ("stages", "evaluation")} | body["stages"][-1]
    for name, keys in [("model", TINY), ("trainer", FOUR_STEPS), *sections.items()]:
        stage[name] = {**stage.get(name, {}), **keys}
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(stage))
    return file


@dataclass(frozen=True)
class ResumedRun:
    """A run of four steps that was resumed from its checkpoint of step 2.

    Args:
        early: State of the part in the checkpoint of step 2.
        late: Its state in that of step 4.
        weights: File of the policy's weights.
        metrics: Logged metrics of each optimizer step.
    """

    early: Any
    late: Any
    weights: bytes
    metrics: list[dict[str, Any]]


def train_and_resume(file: Path, folder: Path, part: str, *overrides: str) -> ResumedRun:
    """Train, delete what the last two steps of the last stage wrote, resume, and check that all is equal to the bit.

    Args:
        file: Recipe that saves a checkpoint at steps 2 and 4 of its last stage, as that of :func:`tiny_recipe`.
        folder: Of the run.
        part: A part whose state is in checkpoints.
        overrides: ``key=value`` for the recipe.

    Raises:
        AssertionError: A command fails, the state does not change, or the resumed run differs.
    """
    _train(file, folder, *overrides)
    *_, stage = sorted(folder.glob("0?-*"))
    weights, late = _weights(stage), _states(stage, 4)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for name in {"checkpoint-4", "adapter", "model"} & {path.name for path in stage.iterdir()}:
        shutil.rmtree(stage / name)
    (stage / "done").unlink()
    _train(file, folder, *overrides, "--resume")
    assert _weights(stage) == weights, "the resumed policy differs"
    assert are_equal(_states(stage, 4), late), "the resumed state of a part differs"
    early = _of_part(_states(stage, 2), part)
    assert not are_equal(early, _of_part(late, part)), "the state is that of step 2"
    return ResumedRun(early, _of_part(late, part), weights, [line for line in lines if "loss" in line])


def check_adapter_is_required(recipe: Path) -> None:
    """Check that `rlm check` accepts a recipe of two stages, and refuses it without the adapter of the second.

    Raises:
        AssertionError: It does not.
    """
    from typer.testing import CliRunner

    from rlm_plugins.cli import app

    accepted = CliRunner().invoke(app, ["check", str(recipe)])
    assert accepted.exit_code == 0, accepted.output
    refused = CliRunner().invoke(app, ["check", str(recipe), "stages.1.model.lora=null"])
    assert refused.exit_code != 0
    assert "requires a frozen base" in refused.output


def are_equal(a: Any, b: Any) -> bool:
    """Return True if two nested states are equal, tensors to the bit."""
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(are_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(are_equal, a, b))
    return bool(a == b)


def _train(file: Path, folder: Path, *options: str) -> None:
    from typer.testing import CliRunner

    from rlm_plugins.cli import app

    result = CliRunner().invoke(app, ["train", str(file), "--out", str(folder), *options])
    assert result.exit_code == 0, result.output


def _weights(stage: Path) -> bytes:
    (file,) = (stage / "checkpoint-4").glob("*.safetensors")
    return file.read_bytes()


def _states(stage: Path, step: int) -> dict[str, Any]:
    states: dict[str, Any] = torch.load(stage / f"checkpoint-{step}" / "parts.pt", weights_only=True)
    return states


def _of_part(states: Mapping[str, Any], part: str) -> Any:
    (state,) = [state for name, state in states.items() if part in name]
    return state
