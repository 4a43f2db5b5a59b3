"""No written attack passes tests, in any way of testing; an ordinary program passes all of them."""

from __future__ import annotations

import json

import pytest
from further_attacks import COMPLETIONS, FURTHER, LARGE, NEAR, SCRIPT_TESTS, SCRIPTS
from rlm_code import code_tests
from written_attacks import ATTACKS, TESTS

HONEST = "def f(x):\n    return x * x\n"


def scores(programs: list[str], way: str, seconds: float) -> list[float | None]:
    tests = (TESTS | SCRIPT_TESTS | LARGE)[way]
    texts = [f"```python\n{program}\n```" for program in programs]
    return code_tests(texts, [json.dumps(tests)] * len(texts), seconds=seconds, total_seconds=8 * seconds)


@pytest.mark.parametrize("way", TESTS)
def test_an_honest_program_passes(way: str) -> None:
    assert scores([HONEST], way, 10.0) == [1.0]


@pytest.mark.full
@pytest.mark.parametrize("way", TESTS)
def test_no_attack_passes(way: str) -> None:
    attacks = {**ATTACKS, **FURTHER}
    found = dict(zip(attacks, scores([*attacks.values()], way, 0.7), strict=True))
    assert {name for name, score in found.items() if score} == set()
    assert len(found) > 40


def test_no_number_near_the_right_one_passes() -> None:
    for way in LARGE:
        found = dict(zip(NEAR, scores([*NEAR.values()], way, 4.0), strict=True))
        assert {name for name, score in found.items() if score} == set(), way
    assert scores([HONEST, HONEST.replace("x * x", "[x * x]")], "large calls", 4.0) == [1.0, 0.0]


@pytest.mark.parametrize("way", SCRIPT_TESTS)
def test_no_script_passes(way: str) -> None:
    assert scores(["print(int(input()) ** 2)"], way, 10.0) == [1.0]
    found = dict(zip(SCRIPTS, scores([*SCRIPTS.values()], way, 0.7), strict=True))
    assert {name for name, score in found.items() if score} == set()


def test_no_completion_hides_a_program() -> None:
    tests = json.dumps(TESTS["asserts"])
    found = dict(zip(COMPLETIONS, code_tests([*COMPLETIONS.values()], [tests] * len(COMPLETIONS)), strict=True))
    assert {name for name, score in found.items() if score} == set()
