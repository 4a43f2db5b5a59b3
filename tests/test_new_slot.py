"""A new symbol of the equation: the edits of the core that it takes, tried on a copy with a part from outside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import rlm_plugins

EDITS = {
    "hookspecs.py": [
        (
            "@hookspec\ndef rlm_penalties() -> Parts:\n",
            '@hookspec\ndef rlm_loss_scales() -> Parts:\n    """s: factor in ℓ. Returns ``(B, 1)``."""\n\n\n',
        )
    ],
    "equation/hooks.py": [
        ('    "rlm_penalties": Hook(', '    "rlm_loss_scales": Hook("loss_scales", "s", LOSS, many=True),\n')
    ],
    "equation/equation.py": [
        ("    penalties: Sequence[Bound] = ()\n", "    loss_scales: Sequence[Bound] = ()\n"),
        ('"penalties")\n        slots = [', '"loss_scales", '),
    ],
    "equation/step.py": [
        (
            "    if batch.rollout_weight is not None:\n        loss = loss",
            "    for x in equation.loss_scales:\n        loss = loss * call_part(x, batch, neutral=1.0).detach()\n",
        )
    ],
    "specs.py": [("    penalties: Sequence[Spec] = ()\n", "    loss_scales: Sequence[Spec] = ()\n")],
    "recipe/sections.py": [
        (
            "    penalties: (\n        _part_list(",
            '    loss_scales: _part_list(Slot) | None = Field(None, description="factors of completions")\n',
        )
    ],
    "report/objective_text.py": [
        (
            "    terms = [(part, f",
            '    weights += "".join(f"{symbol} · " for symbol, _ in numbered("s", slots["loss_scales"]))\n',
        )
    ],
}
"""File → (the text before which it stands, the new text)."""
PART = '''
from rlm_plugins import hookimpl


def halved(rewards, *, share: float = 0.5):
    """s = share: every completion counts less."""
    return rewards[:, None] * 0 + share


def letters(completions):
    """Different letters of a completion."""
    return [float(len(set(str(text)))) for text in completions]


@hookimpl
def rlm_rewards():
    return {"letters": letters}


@hookimpl
def rlm_loss_scales():
    return {"halved": halved}
'''
RECIPE = """
plugins: {load: [part.py]}
model: {name: scratch, hidden: 16, layers: 1, lora: {r: 2, target_modules: all-linear}}
environment: {name: addition, digits: 1, train_rows: 8, test_rows: 0}
rewards: [letters]
algorithm: grpo
speed: none
trainer: {max_steps: 1, per_device_train_batch_size: 4, num_generations: 4, max_completion_length: 4}
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the edited core, a part and a recipe."""
    folder = tmp_path_factory.mktemp("slot")
    shutil.copytree(
        Path(rlm_plugins.__file__).parent, folder / "rlm_plugins", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, edits in EDITS.items():
        file = folder / "rlm_plugins" / name
        text = file.read_text(encoding="utf-8")
        for anchor, new in edits:
            assert text.count(anchor) == 1, (name, anchor)
            text = text.replace(anchor, new + anchor)
        file.write_text(text, encoding="utf-8")
    (folder / "part.py").write_text(PART)
    (folder / "recipe.yaml").write_text(RECIPE)
    return folder


def rlm(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder), "RLM_CACHE": str(folder / "cache")}
    command = [sys.executable, "-m", "rlm_plugins", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def grad_norm(folder: Path, name: str, *overrides: str) -> float:
    rlm(folder, "train", "recipe.yaml", *overrides, "--name", name)
    lines = [json.loads(line) for line in (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()]
    (norm,) = [line["grad_norm"] for line in lines if "grad_norm" in line]
    return float(norm)


def test_at_most_eight_files_of_the_core() -> None:
    assert len(EDITS) <= 8


def test_its_part_is_shown_and_scales_the_gradient(copy: Path) -> None:
    slot = "algorithm={name: grpo, loss_scales: [{name: halved, share: 0.25}]}"
    shown = rlm(copy, "check", "recipe.yaml", slot, "--full")
    assert "s · " in shown
    assert "halved" in shown
    before = grad_norm(copy, "without")
    assert before > 0
    assert grad_norm(copy, "with", slot) == pytest.approx(before / 4, rel=1e-4)


def test_a_mistake_in_it_is_refused(copy: Path) -> None:
    slot = "algorithm={name: grpo, loss_scales: [{name: halved, shar: 0.25}]}"
    with pytest.raises(AssertionError, match="share"):
        rlm(copy, "check", "recipe.yaml", slot)
