"""math_accuracy: contract, an example per knob, and unparseable references."""

from __future__ import annotations

from typing import Any

import pytest
from rlm_math import math_accuracy
from rlm_testing import conformance

GOLDS = ["4", r"\frac{1}{2}", r"2\sqrt{3}", "(1, 2)", r"\text{yes}", "B", None]
TEXTS = [
    r"\boxed{4}",
    r"\boxed{0.5}",
    r"\boxed{\sqrt{12}}",
    r"\boxed{(1,2)}",
    r"\boxed{9^{9^9}}",
    "<think>",
    r"\boxed{B}",
]

test_laws = conformance("rlm_rewards", math_accuracy, columns={"answer": GOLDS, "completions": TEXTS})

KNOBS: list[tuple[dict[str, Any], str, str, float, float]] = [
    ({"box": "only"}, "4", r"\boxed{3} no: \boxed{4}", 1, 0),
    ({"box": "first"}, "4", r"\boxed{4} no: \boxed{3}", 0, 1),
    ({"box": "all"}, "4", r"\boxed{3} no: \boxed{4}", 1, 0),
    ({"box": "all"}, "4", r"\boxed{4}, that is \boxed{4.0}", 1, 1),
    ({"units": "ignore"}, r"4\text{ m}", r"\boxed{4\text{ cm}}", 0, 1),
    ({"units": "require"}, r"4\text{ m}", r"\boxed{4}", 1, 0),
    ({"units": "require"}, r"4\text{ m}", r"\boxed{4\text{ metres}}", 1, 1),
    ({"percent": "hundredth"}, "50", r"\boxed{50\%}", 1, 0),
    ({"percent": "hundredth"}, "0.5", r"\boxed{50\%}", 1, 1),
    ({"percent": "hundredth"}, r"50\%", r"\boxed{50}", 1, 0),
    ({"brackets": "any"}, "(1,2]", r"\boxed{[1,2)}", 0, 1),
    ({"ordered": False}, "(1,2)", r"\boxed{(2,1)}", 0, 1),
    ({"ordered": False}, "(1,2)", r"\boxed{(2,3)}", 0, 0),
    ({"tolerance": 0.01}, r"\frac{1}{3}", r"\boxed{0.33}", 0, 1),
    ({"tolerance": 0.01}, r"\pi", r"\boxed{3.14}", 0, 1),
    ({"tolerance": 0.001}, r"\pi", r"\boxed{3.14}", 0, 0),
    ({"relative_tolerance": 0.01}, "1000", r"\boxed{995}", 0, 1),
    ({"finished": True}, "12", r"\boxed{3 \cdot 4}", 1, 0),
    ({"finished": True}, r"2\sqrt{3}", r"\boxed{\sqrt{12}}", 1, 1),
]


@pytest.mark.parametrize(("knobs", "gold", "text", "before", "after"), KNOBS)
def test_knob(knobs: dict[str, Any], gold: str, text: str, before: float, after: float) -> None:
    assert math_accuracy([text], [gold]) == [before]
    assert math_accuracy([text], [gold], **knobs) == [after]


@pytest.mark.parametrize("gold", [None, float("nan"), "", "  ", "$$", r"\frac{1}{", "\u200b"])
def test_unparseable_reference_is_not_scored(gold: object) -> None:
    assert math_accuracy([r"\boxed{4}", "nothing", rf"\boxed{{{gold}}}"], [gold] * 3) == [None] * 3


@pytest.mark.parametrize(("gold", "answer_text"), [(4, "4"), (4.0, "4"), (0.5, r"\frac12"), (True, "True")])
def test_reference_may_be_a_number(gold: object, answer_text: str) -> None:
    assert math_accuracy([f"\\boxed{{{answer_text}}}"], [gold]) == [1.0]


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        (r"2\sqrt{3}", r"2\sqrt{3}", "2"),
        ("3+4i", "3+4i", "3"),
        ("y=2x+1", "y=2x+1", "1"),
        ("10^{-8}", "10^{-8}", "10"),
        ("2^{10}", "1024", "2"),
    ],
)
def test_references_without_box_are_parsed_completely(gold: str, right: str, wrong: str) -> None:
    texts = [f"\\boxed{{{right}}}", f"\\boxed{{{wrong}}}"]
    assert math_accuracy(texts, [gold] * 2) == [1.0, 0.0]


SIGNS = [r"\quad ", " | ", r"\text{ or }", " **or** ", r"\lor", "<br>", "\n- ", "\n%", " and/or "]


@pytest.mark.parametrize("between", SIGNS)
def test_boxes_with_only_signs_between_them_are_alternatives(between: str) -> None:
    texts = [rf"\boxed{{{first}}}{between}\boxed{{4}}" for first in (5, 4)]
    assert math_accuracy(texts, ["4"] * 2) == [0, 1]


@pytest.mark.parametrize("between", [" = ", ". No: ", "(b)", " is wrong, it is ", r" \text{wrong} "])
def test_a_word_or_an_equals_sign_between_boxes_makes_the_last_one_count(between: str) -> None:
    assert math_accuracy([rf"\boxed{{5}}{between}\boxed{{4}}"], ["4"]) == [1]


def test_late_answers_are_logged() -> None:
    logged: dict[str, float] = {}
    sines = "+".join(rf"\sin(x+{k})" for k in range(80))
    texts, answers = [rf"\boxed{{{sines}}}"] * 2 + [r"\boxed{\sqrt{1}}"], [f"0+{sines}"] * 2 + ["1"]
    scores = math_accuracy(texts, answers, logged.__setitem__, seconds=0.2)
    assert scores == [0.0, 0.0, 1.0]
    assert logged == {"math_late": 1.0, "math_died": 0.0}  # equal pairs are compared once
