"""No program passes tests without an answer, in any way of testing; none delays the trainer beyond its limits."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from attacks import (
    ATTACKS,
    COMPLETIONS,
    FURTHER,
    IN_EVERY_WAY,
    LARGE,
    NEAR,
    SCRIPT_TESTS,
    SCRIPTS,
    SEPARATORS,
    TESTS,
    WAYS,
)
from rlm_coding import code_tests

HONEST = "class MyError(Exception): pass\ndef f(x):\n    if x == -1: raise MyError\n    return x * x\n"
SQUARE = "n = int(input()) ** 2\nprint(n)\n"
QUICK = (
    *("returns_float('inf')", "returns_complex('nan')"),
    *("sends_long_fraction", "sends_many_names", "sends_preload", "own_error"),
)


def scores(programs: list[str], tests: dict[str, Any], seconds: float) -> list[float | None]:
    texts = [f"```python\n{program}\n```" for program in programs]
    return code_tests(texts, [json.dumps(tests)] * len(texts), seconds=seconds, total_seconds=8 * seconds)


def passing(programs: dict[str, str], tests: dict[str, Any], seconds: float = 0.7) -> set[str]:
    """Return the names of the programs that pass."""
    found = zip(programs, scores([*programs.values()], tests, seconds), strict=True)
    return {name for name, score in found if score}


@pytest.mark.parametrize("way", [*WAYS, *TESTS])
def test_an_honest_program_passes(way: str) -> None:
    assert scores([HONEST], (WAYS | TESTS)[way], 10.0) == [1.0]


@pytest.mark.parametrize("way", WAYS)
def test_no_selected_attack_passes(way: str) -> None:
    assert passing({name: IN_EVERY_WAY[name] for name in QUICK}, WAYS[way]) == set()


@pytest.mark.parametrize("way", [*WAYS, *TESTS])
def test_no_attack_passes(way: str) -> None:
    assert passing(IN_EVERY_WAY | (ATTACKS | FURTHER if way in TESTS else {}), (WAYS | TESTS)[way]) == set()


def test_no_number_near_the_right_one_passes() -> None:
    for way, tests in LARGE.items():
        assert passing(NEAR, tests, 4.0) == set(), way
    assert scores([HONEST, HONEST.replace("x * x", "[x * x]")], LARGE["large calls"], 4.0) == [1.0, 0.0]


@pytest.mark.parametrize("way", SCRIPT_TESTS)
def test_no_script_passes(way: str) -> None:
    honest = SQUARE + "print(n)\n" if way == "lines" else SQUARE
    assert scores([honest], SCRIPT_TESTS[way], 10.0) == [1.0]
    assert passing(SCRIPTS, SCRIPT_TESTS[way]) == set()


def test_only_a_line_feed_ends_a_line() -> None:
    source, lines = "n = int(input()) ** 2\nprint(n, n, sep={!r})", SCRIPT_TESTS["lines"]
    assert scores([source.format(each) for each in SEPARATORS], lines, 4.0) == [0.0] * len(SEPARATORS)
    assert scores([source.format(each) for each in ("\n", " \r\n", "\t\n")], lines, 4.0) == [1.0] * 3


def test_no_completion_hides_a_program() -> None:
    tests = json.dumps(TESTS["asserts"])
    found = dict(zip(COMPLETIONS, code_tests([*COMPLETIONS.values()], [tests] * len(COMPLETIONS)), strict=True))
    assert {name for name, score in found.items() if score} == set()


@pytest.mark.parametrize("name", ["sends_long_fraction", "sends_many_names"])
def test_a_value_costs_the_trainer_little(name: str) -> None:
    """At first decoding took 5 s and 4 s of the trainer's own process."""
    start = time.process_time()
    scores([IN_EVERY_WAY[name]], TESTS["calls"], 4.0)
    assert time.process_time() - start < 2.0


def test_checkers_share_the_total_limit() -> None:
    """An output that keeps the checker of each case busy."""
    source = "def check(given, output):\n    while int(output) != 1: pass\n    return True"
    tests = {"checker": {"source": source, "inputs": [f"{number}\n" for number in range(8)]}}
    start = time.monotonic()
    text = ["```python\nprint(4)\n```"]
    assert code_tests(text, [json.dumps(tests)], seconds=0.7, total_seconds=1.4, credit="share") == [0.0]
    assert time.monotonic() - start < 4.0
