"""Rejection sampling within one recipe: the successes of a stage are the data set of a later one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from rlm_plugins import recipe
from rlm_plugins.data.successes import collected, described
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.run.train import train
from rlm_plugins.specs import EnvironmentSpec, Successes

CANNED = Path(__file__).parent / "fake_rollouts.py"
EARLIER = EnvironmentSpec(train=[{"prompt": f"{n}?", "answer": str(n)} for n in range(3)], test=[{"prompt": "9?"}])


def pool(folder: Path, *entries: tuple[str, str, str, float]) -> None:
    keys = ("stage", "prompt", "completion", "reward")
    lines = [json.dumps(dict(zip(keys, entry, strict=True))) for entry in entries]
    (folder / "successes.jsonl").write_text("".join(f"{line}\n" for line in lines))


def spec(**knobs: object) -> EnvironmentSpec:
    wanted = EnvironmentSpec(train=(), successes=Successes("rl", **knobs))  # type: ignore[arg-type]
    return described(wanted, {"rl": EARLIER, "02-rl": EARLIER})


def test_latest_successes_become_demonstrations(tmp_path: Path) -> None:
    pool(
        tmp_path,
        ("02-rl", "0?", "old", 1.0),
        ("02-rl", "0?", "new", 1.0),
        ("02-rl", "1?", "half", 0.5),
        ("01-sft", "2?", "other stage", 1.0),
    )
    assert collected(tmp_path, spec()).train == [{"prompt": "0?", "answer": "0", "demonstration": "new"}]
    assert [row["demonstration"] for row in collected(tmp_path, spec(per_prompt=2)).train] == ["new", "old"]
    assert [row["demonstration"] for row in collected(tmp_path, spec(at_least=0.5)).train] == ["new", "half"]
    assert collected(tmp_path, spec()).test == EARLIER.test


def test_nothing_kept_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="the stage 'rl' kept no completion with a reward of 1"):
        collected(tmp_path, spec())
    with pytest.raises(RecipeError, match="no stage 'rl' before this one"):
        described(EnvironmentSpec(train=(), successes=Successes("rl")), {"sft": EARLIER})


RECIPE = """
model: {name: scratch, layers: 1, hidden: 16, heads: 2, intermediate: 32}
environment: {name: addition, digits: 1, train_rows: 16, test_rows: 0}
rewards: [{name: coin, as: accuracy}]
trainer: {max_steps: 1, per_device_train_batch_size: 8, gradient_checkpointing: false, save_strategy: "no"}
stages:
  - name: rl
    algorithm: grpo
    trainer: {num_generations: 8, per_device_train_batch_size: 64, max_completion_length: 24}
    callbacks: [keep_successes]
  - name: sft
    environment: {name: successes, stage: rl}
    rewards: []
    algorithm: sft
"""


def test_stage_keeps_what_a_later_one_needs(tmp_path: Path) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE.replace("    callbacks: [keep_successes]\n", ""))
    with pytest.raises(RecipeError, match="no stage 'rl' before this one keeps its successes") as error:
        compose(recipe.load(file), Registry([CANNED]))
    assert "add `callbacks: [keep_successes]` to the stage 'rl'" in str(error.value)


def test_recipe_trains_on_its_own_successes(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    file = tmp_path / "recipe.yaml"
    file.write_text(RECIPE)
    run = train(recipe.load(file), Registry([CANNED]), tmp_path / "run")
    assert [record["stage"] for record in run.records() if "loss" in record] == ["01-rl", "02-sft"]
    assert (tmp_path / "run" / "successes.jsonl").is_file()
