"""Adversarial inputs get their correct score in time, except those in MISSED."""

from __future__ import annotations

import time

import pytest
from rlm_math import math_accuracy
from rlm_math.measured.adversarial_cases import CASES, Case, box
from rlm_math.measured.pairs import COMMITTED, RIGHT, UNCOMMITTED, WRONG

MISSED: set[str] = set()
"""Correct answers that score 0."""

HANG = 120.0
"""A hang guard only: the timeout of one answer is 2.5 s, and a verifier that ignores it never returns."""


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    math_accuracy([box(r"\sqrt{4}")], ["2"])


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_adversarial_input_gets_its_score(case: Case) -> None:
    start = time.monotonic()
    (score,) = math_accuracy([case.completion], [case.gold])
    assert score == (0.0 if case.name in MISSED else case.expected)
    assert time.monotonic() - start < HANG


def test_missed_inputs_are_few_and_correct() -> None:
    right = {case.name for case in CASES if case.expected}
    assert right >= MISSED
    assert len(MISSED) <= 5


@pytest.mark.parametrize(("gold", "answer_text"), RIGHT)
def test_equal_pairs(gold: str, answer_text: str) -> None:
    assert math_accuracy([box(answer_text)], [gold]) == [1.0]


@pytest.mark.parametrize(("gold", "answer_text"), WRONG)
def test_different_pairs(gold: str, answer_text: str) -> None:
    assert math_accuracy([box(answer_text)], [gold]) == [0.0]


@pytest.mark.parametrize(("gold", "text"), COMMITTED)
def test_final_answer_is_found(gold: str, text: str) -> None:
    assert math_accuracy([text], [gold]) == [1.0]


@pytest.mark.parametrize(("gold", "text"), UNCOMMITTED)
def test_no_unambiguous_final_answer(gold: str, text: str) -> None:
    assert math_accuracy([text], [gold]) == [0.0]


def test_spacing_commands_are_ignored() -> None:
    pairs = [
        (gold, answer_text)
        for gold, answer_text in RIGHT
        if " " not in answer_text and "\\text" not in answer_text and answer_text.isascii()
    ]
    spaced = [box(f"\\displaystyle \\; {answer_text} \\,") for _, answer_text in pairs]
    assert math_accuracy(spaced, [gold for gold, _ in pairs]) == [1.0] * len(pairs)


def test_answer_equals_itself() -> None:
    references = sorted({gold for gold, _ in RIGHT + WRONG})
    assert math_accuracy([box(gold) for gold in references], references) == [1.0] * len(references)
