"""Repairs: the original passes, and neither the bug, nor the shown test alone, nor another bug is paid."""

from __future__ import annotations

import json
import re

import pytest
from rlm_code import code_tests
from rlm_code.repair_programs import FUNCTIONS
from rlm_code.repairs import repairs

from rlm_plugins.specs import EnvironmentSpec


@pytest.fixture(scope="module")
def world() -> EnvironmentSpec:
    return repairs()


def rows(world: EnvironmentSpec) -> list[dict[str, str]]:
    return [dict(row) for row in (*world.train, *world.test)]


def scores(answers: list[str], world: EnvironmentSpec) -> list[float | None]:
    return code_tests(answers, [row["tests"] for row in rows(world)], seconds=1.0)


@pytest.mark.full
def test_every_function_has_bugs_and_held_out_ones_are_not_trained_on(world: EnvironmentSpec) -> None:
    names = {json.loads(row["tests"])["calls"]["name"] for row in rows(world)}
    assert names == {function.__name__ for function in FUNCTIONS}
    assert {row["broken"] for row in world.train}.isdisjoint(row["broken"] for row in world.test)
    assert len(world.test) >= 10
    assert len(world.train) > 60
    assert [row["broken"] for row in repairs().test] == [row["broken"] for row in world.test]


@pytest.mark.full
def test_original_is_right_and_the_bug_is_not(world: EnvironmentSpec) -> None:
    found = rows(world)
    assert scores([row["demonstration"] for row in found], world) == [1.0] * len(found)
    assert scores([f"```python\n{row['broken']}\n```" for row in found], world) == [0.0] * len(found)


def test_shown_test_alone_is_not_paid(world: EnvironmentSpec) -> None:
    """The answer keeps the bug, and returns the prompt's value for the prompt's call."""
    answers = []
    for row in rows(world):
        call, value = re.findall(r"^(\w+\(.*\)) should be (.*), and is: ", row["prompt"][0]["content"], re.M)[0]  # type: ignore[index]
        name, args = call.split("(", 1)
        special = f"_f = {name}\ndef {name}(*a):\n    return {value} if a == ({args[:-1]},) else _f(*a)"
        answers.append(f"```python\n{row['broken']}\n{special}\n```")
    assert scores(answers, world) == [0.0] * len(answers)


def test_other_answers_are_not_paid(world: EnvironmentSpec) -> None:
    """Nothing, a constant, an exit, and the bug of another example of the same function are tested."""
    found = rows(world)
    for text in ("", "```python\n```", "```python\nraise SystemExit(0)\n```"):
        assert scores([text] * len(found), world) == [0.0] * len(found)
    names = [json.loads(row["tests"])["calls"]["name"] for row in found]
    constant = [f"```python\ndef {name}(*a):\n    return True\n```" for name in names]
    assert sum(map(bool, scores(constant, world))) == 0
    others = [next((r["broken"] for r, n in zip(found, names, strict=True) if n == name and r != row), row["broken"])
              for row, name in zip(found, names, strict=True)]  # fmt: skip
    assert scores([f"```python\n{broken}\n```" for broken in others], world) == [0.0] * len(found)
