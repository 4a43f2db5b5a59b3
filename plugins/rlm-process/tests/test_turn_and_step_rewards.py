"""Rewards of turns and steps: a user's function, tool calls, alone and in training."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import strategies as st
from rlm_process import PerStep, PerTurn
from rlm_process.step_boundaries import Pattern
from rlm_process.turn_and_step_rewards import tool_calls, tool_format
from rlm_testing import conformance
from typer.testing import CliRunner

from rlm_plugins.builtin.models import scratch
from rlm_plugins.cli import app
from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.registry.part import Part

TOKENIZER = scratch().tokenizer()
HEARD: list[Any] = []
AS_LONG = f"{Path(__file__).parent}/judges.py:as_long"


def right(texts: list[str], observations: list[str], answer: str) -> list[float | None]:
    """Return 1 for a turn with the answer, 0 for another, None for an empty one."""
    HEARD.append((texts, observations))
    return [float(text == answer) if text else None for text in texts]


def one_too_few(texts: list[str]) -> list[float]:
    return [1.0] * (len(texts) - 1)


def no_number(texts: list[str]) -> list[float]:
    return [float("nan")] * len(texts)


async def as_a_tensor(texts: list[str]) -> torch.Tensor:
    return torch.ones(len(texts))


def paid(turns: list[list[tuple[str, bool]]], **knobs: Any) -> list[list[float]]:
    """Return the rewards of turns given as (text, True if the policy's)."""
    marked = [[(i, own) for text, own in row for i in TOKENIZER(text)["input_ids"]] for row in turns]
    width = max(map(len, marked))
    mask = torch.tensor([[own for _, own in row] + [False] * (width - len(row)) for row in marked])
    inputs = [{"answer": "12"}] * len(turns)
    found: list[list[float]] = PerTurn(**{"by": f"{__file__}:right", **knobs})(
        [[i for i, _ in row] for row in marked], mask, inputs, TOKENIZER
    ).tolist()
    return found


def test_turn_reward_is_on_its_last_token():
    rows = [[("3", True), ("=?", False), ("12", True), ("+", False)], [("+", False), ("12<|end|>", True)]]
    assert paid(rows, weight=2.0) == [[0.0, 0.0, 0.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 2.0, 0.0, 0.0]]
    observations = sys.modules[
        f"rlm_borrowed_{Path(__file__).stem}"
    ].HEARD  # a function by its address comes from a module object of its own
    assert observations == [(["3", "12"], ["", "=?"]), (["12"], ["+"])]


def test_turn_without_a_score_gets_zero():
    assert paid([[("<|end|>", True), ("?", False), ("1", True)]]) == [[0.0, 0.0, 0.0]]


def test_function_must_return_one_score_per_turn():
    with pytest.raises(
        PartError, match=r"one_too_few' returned \[\](.|\n)*1 finite numbers .* one per entry of `texts`"
    ):
        paid([[("3", True)]], by=f"{__file__}:one_too_few")
    with pytest.raises(PartError, match="no_number' returned nan"):
        paid([[("3", True)]], by=f"{__file__}:no_number")


def test_function_may_be_async_and_return_a_tensor():
    assert paid([[("3", True)]], by=f"{__file__}:as_a_tensor") == [[1.0]]


@pytest.mark.parametrize("name", ["per_turn", "per_step"])
def test_missing_function_is_a_recipe_error(name: str):
    part = Part("rlm_shapers", name, "rlm_process", {"per_turn": PerTurn, "per_step": PerStep}[name])
    with pytest.raises(RecipeError, match=r"shapers\.by"):
        part.bind({"by": "nowhere:nothing"}, where="shapers")


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("column", "fits"), [("answer", True), ("solution", False)])
def test_check_uses_the_columns(tmp_path: Path, column: str, fits: bool):
    (tmp_path / "scores.py").write_text(f"def right(texts, {column}):\n    return [0.0] * len(texts)\n")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "environment: {name: addition, digits: 1, test_rows: 2}\n"
        "rewards: [accuracy]\n"
        "model: {name: scratch, layers: 1, hidden: 32, heads: 2}\n"
        f"algorithm: {{name: grpo, shapers: [{{name: per_step, by: '{tmp_path}/scores.py:right'}}]}}\n"
        "trainer: {max_completion_length: 8}\n"
    )
    result = CliRunner().invoke(app, ["check", str(recipe)])
    assert (result.exit_code == 0) is fits, result.output
    assert fits or "algorithm.shapers[0].by" in result.output
    assert fits or "requires 'solution', which is not available" in result.output


def test_step_reward_is_on_its_last_token():
    ids = [TOKENIZER(text)["input_ids"] for text in ("1;23", "4;5;6<|end|>", "")]
    mask = torch.tensor([[t < len(row) for t in range(6)] for row in ids])
    shaper = PerStep(by=AS_LONG, steps=Pattern(pattern=";"), weight=3.0)
    found = shaper(ids, mask, [{}] * 3, TOKENIZER)
    assert found.tolist() == [[0.0, 3.0, 0.0, 3.0, 0.0, 0.0], [0.0, 3.0, 0.0, 3.0, 0.0, 0.0], [0.0] * 6]


def test_steps_end_with_their_turn():
    """``1`` of the policy, ``;`` observed, ``23`` of the policy: two steps; in a single turn they are one."""
    (ids,) = (TOKENIZER("1;23")["input_ids"],)
    mask, shaper = torch.tensor([[True, False, True, True]]), PerStep(by=AS_LONG, steps="lines")
    assert shaper([ids], mask, [{}], TOKENIZER, torch.zeros(1, 4)).tolist() == [[0.0, 0.0, 0.0, 1.0]]
    assert shaper([ids], mask, [{"wanted": 4}], TOKENIZER).tolist() == [[0.0, 0.0, 0.0, 1.0]]


test_laws = conformance("rlm_shapers", PerStep, knobs={"by": AS_LONG, "steps": {"every": 2}})


RECIPE = """
plugins: {load: [./scores.py]}
environment: asked_thrice
rewards: [{name: episode_return, weight: 0}]
model: {name: scratch, layers: 1, hidden: 32, heads: 2, intermediate: 64}
algorithm: {name: gigpo, shapers: [by_turn, {name: per_turn, by: './scores.py:digits'}]}
trainer:
  max_steps: 2
  per_device_train_batch_size: 16
  num_generations: 8
  max_completion_length: 12
  learning_rate: 1e-2
  save_strategy: "no"
  bf16: false
"""
SCORES = """
from rlm_plugins import hookimpl
from rlm_plugins.specs import Environment, EnvironmentSpec

def digits(texts, observations, secret):
    assert len(texts) == len(observations)
    return [0.25 * text[:1].isdigit() for text in texts]

class Sums(Environment):
    turns = 3

    def reset(self, secret):
        return f"{secret}+0="

    def step(self, action):
        return "?", float(action[:1].isdigit()), False

def asked_thrice():
    return EnvironmentSpec(train=[{"prompt": f"{i}", "secret": i} for i in range(8)], environment=Sums)

@hookimpl
def rlm_environments():
    return {"asked_thrice": asked_thrice}
"""


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_turn_rewards_train(tmp_path: Path):
    (tmp_path / "scores.py").write_text(SCORES)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    result = CliRunner().invoke(app, ["train", str(tmp_path / "recipe.yaml"), "--out", str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    log = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in log if "shapers/reward" in line]
    # Every turn that the world paid 1 for the function pays a quarter more, and that of a turn which was cut off too.
    for line in steps:
        paid = line["rewards/episode_return/mean"]
        assert 1.25 * paid - 1e-6 <= line["shapers/reward"] <= paid + 0.75
    assert max(line["rewards/episode_return/mean"] for line in steps) > 0
    assert max(line["advantage/nonzero"] for line in steps) > 0.5


def call(*calls: tuple[str, dict[str, Any]]) -> str:
    lines = "\n".join(json.dumps({"name": name, "parameters": parameters}) for name, parameters in calls)
    return f"<tool_call>\n{lines}\n</tool_call>"


GOLD = call(("find", {"x": 1, "y": "a"}), ("send", {"to": "b"}))
ANSWERS = {"answer": st.sampled_from([GOLD, "<response>Yes.</response>", GOLD + "<response>Yes.</response>", ""])}

test_laws_of_calls = conformance("rlm_rewards", tool_calls, columns=ANSWERS)
test_laws_of_form = conformance("rlm_rewards", tool_format, columns=ANSWERS)


@pytest.mark.parametrize(
    ("completion", "score"),
    [
        (GOLD, 3.0),
        (call(("send", {"to": "b"}), ("find", {"y": "a", "x": 1})), 3.0),  # in another order
        # Names 1/2, parameters 1, values 2, of 6 points.
        (call(("find", {"x": 1, "y": "a"})), 6 * 3.5 / 6 - 3),
        # Names 1, find: parameters 2/3 (z too many), values 1 (y wrong); send: none of the names, no value.
        (call(("find", {"x": 1, "y": "b", "z": 0}), ("send", {"for": "b"})), 6 * (1 + 2 / 3 + 1) / 6 - 3),
        (call(("lose", {})), -3.0),
        ("", -3.0),
        ("<tool_call></tool_call>", -3.0),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", -3.0),
    ],
)
def test_tool_calls_by_hand(completion: str, score: float):
    assert tool_calls([completion], [GOLD]) == [pytest.approx(score)]


def test_repeated_calls_are_matched_once_each():
    gold = call(("f", {"x": 1}), ("f", {"x": 2}))
    assert tool_calls([call(("f", {"x": 2}), ("f", {"x": 1}))], [gold]) == [3.0]
    # Names 1/2; the first call of the reference takes the only one there is: parameters 1, values 0, of 5 points.
    assert tool_calls([call(("f", {"x": 2}))], [gold]) == [pytest.approx(6 * (0.5 + 1) / 5 - 3)]


def test_reference_without_calls_is_not_scored():
    assert tool_calls(["<response>No.</response>"], ["<response>Yes.</response>"]) == [None]


def test_malformed_reference_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"`answer` as JSON.*f\(1\)"):
        tool_calls([GOLD], ["<tool_call>f(1)</tool_call>"])


@pytest.mark.parametrize(
    ("completion", "right"),
    [
        ("<think>a</think>\n" + GOLD, True),
        ("<think>a</think>" + GOLD + "<response>b</response>", False),
        (GOLD, False),
        ("<think>a</think>so " + GOLD, False),
        ("<think>a</think>", False),
    ],
)
def test_tool_format(completion: str, right: bool):
    assert tool_format([completion], [GOLD]) == [float(right)]


def test_tool_format_without_calls():
    gold = "<response>Yes.</response>"
    assert tool_format(["<think>a</think><response>b</response>", "<think>a</think>"], [gold, gold]) == [1.0, 0.0]
    assert tool_format(["<think>a</think>", gold], ["", ""]) == [1.0, 0.0]
