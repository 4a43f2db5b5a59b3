"""`rlm reward probe`: an honest reward passes, and each way of being wrong is found and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlm_plugins.builtin.rewards import accuracy, format
from rlm_plugins.cli import app
from rlm_plugins.cli.reward_probe_report import findings, render
from rlm_plugins.registry.part import Part
from rlm_plugins.reward_probe.cases import LONG
from rlm_plugins.reward_probe.probe import Probe
from rlm_plugins.stage import Reward

ROWS = [{"prompt": [{"role": "user", "content": f"{a}+{b}=?"}], "answer": str(a + b)} for a in (1, 9) for b in range(6)]


def reward(function: Callable[..., Any], **knobs: Any) -> Reward:
    return Reward(function.__name__, Part("rlm_rewards", function.__name__, "guest", function).bind(knobs))


def report(function: Callable[..., Any], *others: Reward, **how: Any) -> dict[str, Any]:
    found = Probe([reward(function), *others], how.pop("rows", ROWS), **how).report()
    json.dumps(found)
    assert render(found)
    return found


def test_an_honest_reward_has_nothing_to_hide() -> None:
    found = report(accuracy, reward(format))
    assert findings(found) == ["nothing"]
    assert found["best_form"] == "thinking, answer tag"
    assert found["gold"]["thinking, answer tag"]["mean"] == 1.0
    assert found["gold"]["box"]["mean"] == 0.0
    assert {x["mean"] for x in found["traps"].values()} == {0.0}
    assert found["behaviour"]["without_answer"] == "not scored (None)"
    (agreement,) = found["agreement"]
    assert agreement["with"] == "format"
    assert "wrong but confident" not in agreement["apart_on"], "the format is not the whole text there"
    assert 0 < agreement["correlation"] < 1


def contains(completions: list[str], answer: list[str]) -> list[float]:
    """Talked into anything: the answer stands somewhere."""
    return [float(str(right) in text) for text, right in zip(completions, answer, strict=True)]


def lengthy(completions: list[str]) -> list[float]:
    """Only counts."""
    return [float(len(text)) for text in completions]


def shy(completions: list[str], answer: list[str]) -> list[float]:
    """Raises on what it was not made for."""
    return [1 / len(text) for text in completions]


calls: list[int] = []


def moody(completions: list[str], answer: list[str]) -> list[float]:
    """Depends on the call, the place and the company."""
    calls.append(len(completions))
    return [float(len(calls) * row) for row in range(len(completions))]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (contains, "'all answers in one' is paid like the right answer on 12 of 12 rows"),
        (contains, "'right, then wrong' is paid"),
        (contains, "'right only while thinking' is paid"),
        (contains, "a row without an answer is scored 0"),
        (lengthy, "'absurdly long' is paid like the right answer on 12 of 12 rows"),
        (lengthy, "'wrong but confident' is paid"),
        (shy, "'empty' makes it fail: raised ZeroDivisionError"),
        (moody, "it does not say the same twice"),
        (moody, "the order of the rows matters"),
        (moody, "what else is in the batch matters"),
        (moody, "not every right answer is paid alike"),
    ],
)
def test_what_is_wrong_is_found(function: Callable[..., Any], words: str) -> None:
    assert any(words in line for line in findings(report(function))), findings(report(function))


def generous(completions: list[str]) -> list[float]:
    """Pays everything."""
    return [1.0] * len(completions)


def test_every_control_can_fail() -> None:
    found = findings(report(generous))
    names = list(report(accuracy)["traps"])
    assert len(names) == 10
    for name in names:
        assert f"'{name}' is paid like the right answer on 12 of 12 rows" in found


def undecided(completions: list[str]) -> list[float]:
    """No number for what is empty."""
    return [float(len(text) or "nan") for text in completions]


def test_what_is_no_number_is_told() -> None:
    assert any("'empty' makes it fail: returned nan" in line for line in findings(report(undecided)))


def runs(completions: list[str], tests: list[str]) -> list[float]:
    """Knows a program by what it does: no answer stands in any column."""
    return [float(text.strip().endswith(test)) for text, test in zip(completions, tests, strict=True)]


def test_what_the_data_set_shows_is_right_where_no_column_holds_answers() -> None:
    rows = [{"prompt": f"add {n}", "tests": f"x+{n}", "demonstration": f"return x+{n}"} for n in range(4)]
    found = report(runs, rows=rows, answer=None)
    assert (found["answer"], found["best_form"]) == ("demonstration", "demonstration")
    assert found["gold"]["demonstration"]["mean"] == 1.0
    assert found["traps"]["wrong but confident"]["mean"] == 0.0
    assert findings(found) == ["nothing"]


def last_box(completions: list[str], answer: list[str]) -> list[float]:
    """Commits to the last line, as a reader of last boxes does."""
    return [float((text.splitlines() or [""])[-1] == right) for text, right in zip(completions, answer, strict=True)]


def test_who_takes_the_last_of_many_has_committed() -> None:
    assert report(last_box)["traps"]["all answers, one after the other"]["mean"] == 0.0


def in_words(completions: list[str], answer: list[str]) -> list[float]:
    """Reads a form that nobody would guess."""
    return [float(text == f"It equals <<{right}>>") for text, right in zip(completions, answer, strict=True)]


def test_a_form_nobody_would_guess() -> None:
    assert any("paid more than nothing at all" in line for line in findings(report(in_words)))
    found = report(in_words, forms={"mine": "It equals <<{answer}>>"})
    assert found["gold"]["mine"]["mean"] == 1.0
    assert findings(found) == ["a row without an answer is scored 0: None would leave it out"]


async def waits(completions: list[str], answer: list[str]) -> list[float | None]:
    """Asynchronous."""
    return accuracy(completions, answer)


def test_asynchronous_rewards_and_rows_without_answers() -> None:
    assert findings(report(waits)) == ["nothing"]
    found = report(format, rows=[{"prompt": "write"}, {"prompt": "more"}], answer=None)
    assert found["gold"] == {}
    assert "wrong but confident" not in found["traps"]
    assert found["traps"]["absurdly long"]["as_good_as_gold"] is None
    assert LONG > 10_000


def rlm(*words: str) -> Any:
    return CliRunner().invoke(app, ["reward", "probe", *words])


def test_on_the_command_line(tmp_path: Path) -> None:
    said = rlm("accuracy", "--rows", "4")
    assert said.exit_code == 0, said.output
    assert "what stands out\n  - nothing" in said.output
    lenient = rlm("accuracy", "untagged=last_number", "--json", "--rows", "4")
    found = json.loads(lenient.output)
    assert found["gold"]["sentence"]["mean"] == 1.0
    assert found["full_name"] == "builtin/accuracy"
    wrong = rlm("acuracy")
    assert wrong.exit_code == 2
    part = tmp_path / "mine.py"
    part.write_text(
        "from rlm_plugins import hookimpl\n\ndef mine(completions, target):\n    return [0.0] * len(completions)\n\n"
        "@hookimpl\ndef rlm_rewards():\n    return {'mine': mine}\n"
    )
    missing = rlm("mine", "--load", str(part))
    assert missing.exit_code == 2
    assert "needs the column 'target'" in missing.output


RECIPE = """
environment: {name: addition, digits: 2, test_rows: 6}
rewards: [{name: accuracy, as: right, untagged: boxed}, {name: format, weight: 0.1}]
model: {name: scratch}
algorithm: grpo
"""


def test_rows_and_rivals_of_a_recipe(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(RECIPE)
    found = json.loads(rlm("right", "--recipe", str(file), "--json").output)
    assert found["gold"]["box"]["mean"] == 1.0
    assert found["rows"] == 6
    assert [each["with"] for each in found["agreement"]] == ["format"]
    changed = json.loads(rlm("right", "rewards.right.untagged=wrong", "--recipe", str(file), "--json").output)
    assert changed["gold"]["box"]["mean"] == 0.0
    other = json.loads(rlm("length", "--recipe", str(file), "--json").output)
    assert [each["with"] for each in other["agreement"]] == ["right", "format"]


def test_what_is_played_cannot_be_made_up() -> None:
    done = CliRunner().invoke(app, ["reward", "probe", "episode_return"])
    assert done.exit_code == 2
    assert "no text that could be made up" in done.output
