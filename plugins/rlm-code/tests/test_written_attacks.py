"""No written attack passes tests, in any way of testing; an honest program passes all of them."""

from __future__ import annotations

import json

import pytest
from rlm_code import code_tests
from written_attacks import ATTACKS, TESTS

HONEST = "def f(x):\n    return x * x\n"


def scores(programs: list[str], way: str, seconds: float) -> list[float | None]:
    texts = [f"```python\n{program}\n```" for program in programs]
    return code_tests(texts, [json.dumps(TESTS[way])] * len(texts), seconds=seconds, total_seconds=8 * seconds)


@pytest.mark.parametrize("way", TESTS)
def test_an_honest_program_passes(way: str) -> None:
    assert scores([HONEST], way, 10.0) == [1.0]


@pytest.mark.full
@pytest.mark.parametrize("way", TESTS)
def test_no_attack_passes(way: str) -> None:
    found = dict(zip(ATTACKS, scores([*ATTACKS.values()], way, 0.7), strict=True))
    assert {name for name, score in found.items() if score} == set()
    assert len(found) > 80
