"""Recipes with rollout sources, and data sets of an earlier stage's successes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from rlm_plugins.cli import app
from rlm_plugins.data.successes import collected, described
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe import load
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.resolve import check_names
from rlm_plugins.registry import Registry
from rlm_plugins.run.folder import Run
from rlm_plugins.run.launch import launch
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.run.train import train
from rlm_plugins.specs import EnvironmentSpec, Successes

RECIPE = """
environment: {name: addition, digits: 2, train_rows: 64, test_rows: 4, thinking: false}
rewards: [{name: length, as: short}, accuracy]
evaluation: {metric: short, max_new_tokens: 4}
model: {name: scratch, hidden: 16, heads: 2, intermediate: 16}
algorithm: ALGORITHM
trainer:
  max_steps: 2
  per_device_train_batch_size: 4
  gradient_accumulation_steps: 2
  num_generations: 4
  max_completion_length: 24
  learning_rate: 1.0e-2
  gradient_checkpointing: false
  save_strategy: "no"
"""


def recipe(folder: Path, algorithm: str, *more: str) -> Path:
    file = folder / "tiny.yaml"
    file.write_text(RECIPE.replace("ALGORITHM", algorithm) + "".join(f"{line}\n" for line in more))
    return file


def composed(file: Path, *overrides: str) -> Any:
    found, registry = read(file, overrides)
    return compose(found, registry)


REFUSED = {
    "no such source": ("{name: luffy, policy_loss: {source: polcy}}",
        r"algorithm.policy_loss.source .*: unknown source 'polcy' in `unclipped`", "did you mean 'policy'"),
    "the source is gone": ("{name: luffy, rollouts: []}",
        r"algorithm.penalties\[0\].source.*: unknown source 'demonstrations' in `policy_shaping`", "allowed: policy"),
    "a knob that names a source": ("{name: remax, advantage: {source: gready}}",
        r"algorithm.advantage.source .*: unknown source 'gready' in `greedy_baseline`", "did you mean 'greedy'"),
    "more rows than a group has": ("{name: luffy, rollouts: [{name: demonstrations, num_completions: 5}]}",
        r"algorithm.rollouts.*requires 5 completions of a group, 4 are free", "`trainer.num_generations` is 4"),
    "one label twice": (
        "{name: grpo, rollouts: [{name: greedy, num_completions: 1}, {name: greedy, num_completions: 1}]}",
        "two sources have the label 'greedy'",
        "another label",
    ),
    "no such column": ("{name: luffy, rollouts: {demonstrations: {column: demonstrations}}}",
        r"algorithm.rollouts\[0\].*'demonstrations' requires the column 'demonstrations', which the examples of",
        "did you mean 'demonstration'"),
    "no pool": ("rlep", r"algorithm.rollouts\[0\].path.*: the pool 'successes.jsonl' does not exist", "keep_successes"),
    "a pool for other prompts": ("{name: grpo, rollouts: [{name: replay, num_completions: 1, path: other.jsonl}]}",
        r"algorithm.rollouts\[0\].path.*: no training prompt is in .*other.jsonl", "must match exactly"),
    "an engine without groups": ("{name: sft, rollouts: [greedy]}", "this trainer generates no completions",
        "leave `rollouts` out"),
}  # fmt: skip


@pytest.mark.parametrize(("algorithm", "words", "more"), REFUSED.values(), ids=REFUSED)
def test_refused(tmp_path: Path, monkeypatch: Any, algorithm: str, words: str, more: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.jsonl").write_text('{"prompt": "2*2=", "completion": "4", "reward": 1.0}')
    trainer = "trainer={max_steps: 2}" if "sft" in algorithm else "trainer.max_steps=2"
    with pytest.raises(RecipeError, match=words) as error:
        composed(recipe(tmp_path, algorithm), trainer)
    assert more in str(error.value)


def test_names_are_checked_before_anything_heavy(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="unknown source 'polcy'"):
        check_names(*read(recipe(tmp_path, REFUSED["no such source"][0]), ()))


def test_terms_refer_to_the_label(tmp_path: Path) -> None:
    as_masters = "{name: luffy, rollouts: [{name: demonstrations, num_completions: 1, as: masters}], penalties: "
    as_masters += "[{name: policy_shaping, beta: 1.0, source: masters}]}"
    (stage,) = composed(recipe(tmp_path, as_masters))
    assert stage.equation.penalties[0].options == {"source": "masters", "beta": 1.0}


def test_check_reports_the_sources(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(recipe(tmp_path, "luffy")), "--full"], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    assert (
        "4 completions per prompt = 3 by the policy + 1 by demonstrations; the policy generates what" in result.output
    )


def steps(run: Run) -> list[dict[str, Any]]:
    return [record for record in run.records() if "grad_norm" in record]


@pytest.mark.slow
@pytest.mark.parametrize("row", ["remax", "luffy", "srft", "hpt"])
def test_trainer_runs_every_algorithm(row: str, tmp_path: Path) -> None:
    found = steps(launch(recipe(tmp_path, row), [], out=tmp_path / "run"))
    assert len(found) == 2
    assert all(math.isfinite(step["loss"]) and step["grad_norm"] > 0 for step in found)
    source = "greedy" if row == "remax" else "demonstrations"
    for step in found:
        assert step[f"sources/{source}/share"] == 0.25
        assert step[f"sources/{source}/truncated"] == 0 or source == "greedy"
        assert source == "greedy" or step["sources/demonstrations/reward"] > 0.9  # right, and short


@pytest.mark.slow
def test_successes_of_one_run_are_replayed_in_the_next(tmp_path: Path) -> None:
    kept = "callbacks: [{name: keep_successes, reward: short, at_least: -0.02}]"
    first = launch(recipe(tmp_path, "grpo", kept), [], out=tmp_path / "first")
    pool = first.folder / "successes.jsonl"
    entries = [json.loads(line) for line in pool.read_text().splitlines()]
    assert {tuple(entry) for entry in entries} == {("stage", "step", "prompt", "completion", "reward")}
    assert all(entry["reward"] >= -0.02 for entry in entries)
    assert {entry["step"] for entry in entries} == {0, 1}
    options = [f"algorithm.rollouts.replay.path={pool}", "algorithm.rollouts.replay.at_least=-0.02"]
    again = ["environment.train_rows=64", "trainer.max_steps=8"]
    second = steps(launch(recipe(tmp_path, "rlep"), [*options, *again], out=tmp_path / "second"))
    assert sum(step["sources/replay/share"] for step in second) > 0


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


SUCCESSES = """
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
    file.write_text(SUCCESSES.replace("    callbacks: [keep_successes]\n", ""))
    with pytest.raises(RecipeError, match="no stage 'rl' before this one keeps its successes") as error:
        compose(load(file), Registry([CANNED]))
    assert "add `callbacks: [keep_successes]` to the stage 'rl'" in str(error.value)


def test_recipe_trains_on_its_own_successes(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    file = tmp_path / "recipe.yaml"
    file.write_text(SUCCESSES)
    run = train(load(file), Registry([CANNED]), tmp_path / "run")
    assert [record["stage"] for record in run.records() if "loss" in record] == ["01-rl", "02-sft"]
    assert (tmp_path / "run" / "successes.jsonl").is_file()
