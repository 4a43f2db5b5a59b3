"""Errors of `rlm check` for knobs that contradict `trainer:` and for other inconsistent settings, with their place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlm_plugins.cli import app

RECIPE = """
environment: {name: addition, digits: 2, train_rows: 64, test_rows: 4}
rewards: [accuracy]
stages:
  - {model: {name: scratch, hidden: 16, heads: 2, intermediate: 16}, algorithm: sft, generator: none}
  - algorithm: ppo
    model: {lora: {r: 4}}
    trainer: {per_device_train_batch_size: 8, num_generations: 4, max_completion_length: 16}
"""
HERE = "stages[1]."
WRONG: dict[str, tuple[str, str, str]] = {
    "punished from the first token on": (
        "algorithm.shapers=[{name: overlong, cache: 16}]",
        "algorithm.shapers[0].cache (command line)",
        "the limit is 16 tokens",
    ),
    "at the end of a schedule": (
        "algorithm.shapers=[{name: overlong, cache: {from: 4, to: 20, over: 5}}]",
        "algorithm.shapers[0].cache (command line)",
        "got 20",
    ),
    "nothing to leave out": ("algorithm=gfpo", "algorithm.filters[0].k (algorithm gfpo)", "allowed: less than 4"),
    "paid for drifting": (
        "algorithm.shapers=[{name: kl_in_reward, beta: -1}]",
        "algorithm.shapers[0].beta (command line)",
        "expected 0 or more",
    ),
    "trained twice": (
        "algorithm.penalties=[{name: value_loss, beta: 1.0}, {name: value_loss, beta: 0.5, epsilon: 0.4}]",
        "algorithm.penalties[1] (command line)",
        "the critic would be trained twice",
    ),
    "an adapter that fits nowhere": (
        "model={lora: {target_modules: [nope]}}",
        "model.lora (command line)",
        "PEFT rejects the adapter",
    ),
    "an adapter on the language head": (
        "model={lora: {target_modules: [q_proj, lm_head]}}",
        "model.lora.target_modules (command line)",
        "TRL does not support an adapter on the language head",
    ),
    "a reward model that nobody offers": (
        "rewards=[accuracy, {name: reward_model, path: nobody/nothing}]",
        "rewards[1].path (command line)",
        "nobody/nothing: its config cannot be loaded",
    ),
}


def check(folder: Path, *overrides: str) -> str:
    """Return the output of `rlm check`."""
    file = folder / "recipe.yaml"
    file.write_text(RECIPE)
    return CliRunner().invoke(app, ["check", str(file), *overrides]).output


@pytest.mark.parametrize(("overrides", "place", "words"), WRONG.values(), ids=WRONG)
def test_unsuitable_knobs_are_rejected(
    tmp_path: Path, overrides: str, place: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    printed = check(tmp_path, f"stages.1.{overrides}")
    assert printed.startswith(f"error: {HERE}{place}: "), printed
    assert words in printed


def test_suitable_knobs_are_accepted(tmp_path: Path) -> None:
    suits = ["{name: overlong, cache: 15}", "{name: overlong, max_length: 20, cache: 19}"]
    shapers = f"stages.1.algorithm.shapers=[{', '.join(suits)}]"
    printed = check(tmp_path, shapers, "stages.1.algorithm.filters=[{name: keep_k, k: 3}]", "--json")
    assert len(json.loads(printed)) == 2
