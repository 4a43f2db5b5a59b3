"""No program passes tests by values, operators or messages of its own; none delays the trainer beyond its limits."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from protocol_attacks import FIFTH, SENDING_SCRIPTS, SEPARATORS, WAYS
from rlm_code import code_tests
from written_attacks import TESTS

HONEST = "class MyError(Exception): pass\ndef f(x):\n    if x == -1: raise MyError\n    return x * x\n"
NUMBERS = {"stdin": [["2\n", "4\n"], ["5\n", "25\n"]]}
LINES = {"stdin": [["2\n", "4\n4\n"], ["5\n", "25\n25\r\n"]]}
_CHECK = "def check(given, output):\n    return output.strip(' \\n') == str(int(given) ** 2)"
CHECKER = {"checker": {"source": _CHECK, "inputs": ["2\n", "5\n"]}}
QUICK = ("value_inf", "value_cnan", "sends_long_fraction", "sends_many_names", "sends_preload", "own_error")


def scores(programs: list[str], tests: dict[str, Any], seconds: float, **knobs: Any) -> list[float | None]:
    texts = [f"```python\n{program}\n```" for program in programs]
    return code_tests(texts, [json.dumps(tests)] * len(texts), seconds=seconds, total_seconds=8 * seconds, **knobs)


@pytest.mark.parametrize("way", WAYS)
def test_no_selected_attack_passes(way: str) -> None:
    assert scores([HONEST], WAYS[way], 10.0) == [1.0]
    assert scores([FIFTH[name] for name in QUICK], WAYS[way], 0.7) == [0.0] * len(QUICK)


@pytest.mark.full
@pytest.mark.parametrize("way", [*WAYS, *TESTS])
def test_no_attack_passes(way: str) -> None:
    found = dict(zip(FIFTH, scores([*FIFTH.values()], (WAYS | TESTS)[way], 0.7), strict=True))
    assert {name for name, score in found.items() if score} == set()


@pytest.mark.parametrize("tests", [NUMBERS, LINES, CHECKER], ids=["numbers", "lines", "checker"])
def test_no_script_passes(tests: dict[str, Any]) -> None:
    found = dict(zip(SENDING_SCRIPTS, scores([*SENDING_SCRIPTS.values()], tests, 0.7), strict=True))
    assert {name for name, score in found.items() if score} == set()


def test_only_a_line_feed_ends_a_line() -> None:
    source = "n = int(input()) ** 2\nprint(n, n, sep={!r})"
    assert scores([source.format(each) for each in SEPARATORS], LINES, 4.0) == [0.0] * len(SEPARATORS)
    assert scores([source.format(each) for each in ("\n", " \r\n", "\t\n")], LINES, 4.0) == [1.0] * 3


@pytest.mark.parametrize("name", ["sends_long_fraction", "sends_many_names"])
def test_a_value_costs_the_trainer_little(name: str) -> None:
    """At first decoding took 5 s and 4 s of the trainer's own process."""
    start = time.process_time()
    scores([FIFTH[name]], TESTS["calls"], 4.0)
    assert time.process_time() - start < 2.0


def test_checkers_share_the_total_limit() -> None:
    """An output that keeps the checker of each case busy."""
    source = "def check(given, output):\n    while int(output) != 1: pass\n    return True"
    tests = {"checker": {"source": source, "inputs": [f"{number}\n" for number in range(8)]}}
    start = time.monotonic()
    text = ["```python\nprint(4)\n```"]
    assert code_tests(text, [json.dumps(tests)], seconds=0.7, total_seconds=1.4, credit="share") == [0.0]
    assert time.monotonic() - start < 4.0
