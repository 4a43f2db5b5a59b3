"""Runs of self-play: recipes, both players of real games, resume to the bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rlm_testing.auxiliary_models import train_and_resume
from typer.testing import CliRunner

from rlm_plugins.cli import app

PACKAGE = Path(__file__).parents[1]
RECIPES = {"spiral": PACKAGE / "recipe.yaml", "absolute_zero": PACKAGE / "recipes" / "absolute_zero.yaml"}
SMALL = ["stages.0.trainer.max_steps=2", "evaluation.rows=8", "stages.0.evaluation.rows=8"]
pytestmark = pytest.mark.slow


def train(name: str, folder: Path, *more: str) -> None:
    done = CliRunner().invoke(app, ["train", str(RECIPES[name]), "--out", str(folder), *SMALL, *more])
    assert done.exit_code == 0, done.output


def test_published_settings_pass_check() -> None:
    """The model is a substitute whose vocabulary has all printable characters."""
    characters = "".join(map(chr, [10, *range(32, 127)]))
    model = f"model={{name: scratch, max_positions: 16384, characters: {json.dumps(characters)}}}"
    file = str(PACKAGE / "recipes" / "absolute_zero_7b.yaml")
    done = CliRunner().invoke(app, ["check", file, model, "trainer.use_vllm=false"])
    assert done.exit_code == 0, done.output


@pytest.mark.full
@pytest.mark.parametrize("name", [*RECIPES])
def test_resumed_run_has_the_same_weights_and_state(name: str, tmp_path: Path) -> None:
    """The checkpoint of step 2 has baselines and buffer; a run resumed from it repeats steps 3 and 4."""
    steps = ["stages.1.trainer.max_steps=4", "stages.1.trainer.save_strategy=steps", "stages.1.trainer.save_steps=2"]
    size = ["stages.1.trainer.per_device_train_batch_size=48", "stages.1.trainer.learning_rate=1e-3"]
    size += [f"stages.0.trainer.max_steps={150 if name == 'absolute_zero' else 2}"]  # so that some proposals are valid
    size.append("stages.0.trainer.per_device_train_batch_size=16")
    train_and_resume(RECIPES[name], tmp_path / "run", "selfplay/", *SMALL, *steps, *size)


@pytest.mark.full
def test_both_players_of_each_game_are_trained_and_payoffs_cancel(tmp_path: Path) -> None:
    """Rewards of a legal game sum to 0; a forfeit costs one player 1. Padding-free and padded passes agree."""
    options = ["stages.1.trainer.max_steps=1", "stages.1.trainer.per_device_train_batch_size=32"]
    losses = []
    for name, speed in (("packed", "true"), ("padded", "false")):
        train("spiral", tmp_path / name, *options, f"speed.padding_free={speed}", "evaluation=null")
        lines = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        (line,) = [line for line in lines if line.get("stage", "").endswith("spiral") and "loss" in line] or lines[-1:]
        losses.append((line["loss"], line["grad_norm"]))
        assert line["rewards/role/mean"] == 0.5
        assert -0.5 <= line["reward"] <= 0.0
        assert line["sources/both_seats/share"] == 1.0
    assert losses[0] == pytest.approx(losses[1], rel=1e-3, abs=1e-5)
