"""Every input that breaks verifiers gets the score it deserves, in time. MISSED names those that do not."""

from __future__ import annotations

import time

import pytest
from rlm_math import math_accuracy
from rlm_math.measured.adversary import CASES, Case, box
from rlm_math.measured.pairs import COMMITTED, RIGHT, UNCOMMITTED, WRONG

MISSED: set[str] = set()
"""Right answers that score 0: a handful at most."""

HANG = 120.0
"""A hang guard only: the timeout of one answer is 2.5 s, and a verifier that ignores it never returns."""


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    math_accuracy([box(r"\sqrt{4}")], ["2"])


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_it_gets_what_it_deserves_in_time(case: Case) -> None:
    start = time.monotonic()
    (score,) = math_accuracy([case.completion], [case.gold])
    assert score == (0.0 if case.name in MISSED else case.expected)
    assert time.monotonic() - start < HANG


def test_what_is_missed_is_a_handful_of_right_ones() -> None:
    right = {case.name for case in CASES if case.expected}
    assert right >= MISSED
    assert len(MISSED) <= 5


@pytest.mark.parametrize(("gold", "said"), RIGHT)
def test_the_same(gold: str, said: str) -> None:
    assert math_accuracy([box(said)], [gold]) == [1.0]


@pytest.mark.parametrize(("gold", "said"), WRONG)
def test_not_the_same(gold: str, said: str) -> None:
    assert math_accuracy([box(said)], [gold]) == [0.0]


@pytest.mark.parametrize(("gold", "text"), COMMITTED)
def test_committed(gold: str, text: str) -> None:
    assert math_accuracy([text], [gold]) == [1.0]


@pytest.mark.parametrize(("gold", "text"), UNCOMMITTED)
def test_not_committed(gold: str, text: str) -> None:
    assert math_accuracy([text], [gold]) == [0.0]


def test_white_space_and_sizes_change_nothing() -> None:
    pairs = [(gold, said) for gold, said in RIGHT if " " not in said and "\\text" not in said and said.isascii()]
    spaced = [box(f"\\displaystyle \\; {said} \\,") for _, said in pairs]
    assert math_accuracy(spaced, [gold for gold, _ in pairs]) == [1.0] * len(pairs)


def test_an_answer_is_its_own_answer() -> None:
    golds = sorted({gold for gold, _ in RIGHT + WRONG})
    assert math_accuracy([box(gold) for gold in golds], golds) == [1.0] * len(golds)
