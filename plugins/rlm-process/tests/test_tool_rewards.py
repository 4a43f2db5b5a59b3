"""Rewards of turns with tool calls, by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import strategies as st
from rlm_process.turn_and_step_rewards import tool_calls, tool_format
from rlm_testing import conformance


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
