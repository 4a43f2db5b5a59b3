"""`rlm reward probe`: a correct reward has no findings, and each fault of a reward is a finding."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlm_audit.probe import Probe
from rlm_audit.probe_cases import LONG
from rlm_audit.probe_report import findings, render
from typer.testing import CliRunner

from rlm_plugins.builtin.rewards import accuracy, format
from rlm_plugins.cli import app
from rlm_plugins.registry.part import Part
from rlm_plugins.stage import Reward

EXAMPLES = [
    {"prompt": [{"role": "user", "content": f"{a}+{b}=?"}], "answer": str(a + b)} for a in (1, 9) for b in range(6)
]


def reward(function: Callable[..., Any], **knobs: Any) -> Reward:
    return Reward(function.__name__, Part("rlm_rewards", function.__name__, "third_party", function).bind(knobs))


def report(function: Callable[..., Any], *others: Reward, **how: Any) -> dict[str, Any]:
    result = Probe([reward(function), *others], how.pop("examples", EXAMPLES), **how).report()
    json.dumps(result)
    assert render(result)
    return result


def test_a_correct_reward_has_no_findings() -> None:
    result = report(accuracy, reward(format))
    assert findings(result) == ["none"]
    assert result["best_form"] == "thinking, answer tag"
    assert result["gold"]["thinking, answer tag"]["mean"] == 1.0
    assert result["gold"]["box"]["mean"] == 0.0
    assert {x["mean"] for x in result["traps"].values()} == {0.0}
    assert result["behavior"]["without_answer"] == "not scored (None)"
    (agreement,) = result["agreement"]
    assert agreement["with"] == "format"
    assert "wrong but confident" not in agreement["apart_on"], "the format is not the whole text there"
    assert 0 < agreement["correlation"] < 1


def contains(completions: list[str], answer: list[str]) -> list[float]:
    """Return 1 if the completion contains the answer anywhere."""
    return [float(str(right) in text) for text, right in zip(completions, answer, strict=True)]


def length_only(completions: list[str]) -> list[float]:
    """Return the length."""
    return [float(len(text)) for text in completions]


def raises_on_empty(completions: list[str], answer: list[str]) -> list[float]:
    """Raise on an empty completion."""
    return [1 / len(text) for text in completions]


calls: list[int] = []


def nondeterministic(completions: list[str], answer: list[str]) -> list[float]:
    """Return scores that depend on the call, the position and the batch."""
    calls.append(len(completions))
    return [float(len(calls) * row) for row in range(len(completions))]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (contains, "'all answers in one' scores as much as the correct answer on 12 of 12 examples"),
        (contains, "'right, then wrong' scores"),
        (contains, "'right only while thinking' scores"),
        (contains, "an example without an answer is scored 0"),
        (length_only, "'absurdly long' scores as much as the correct answer on 12 of 12 examples"),
        (length_only, "'wrong but confident' scores"),
        (raises_on_empty, "'empty' makes it fail: raised ZeroDivisionError"),
        (nondeterministic, "a second call gives other scores"),
        (nondeterministic, "the scores depend on the order of the batch"),
        (nondeterministic, "the scores depend on the rest of the batch"),
        (nondeterministic, "correct answers score differently"),
    ],
)
def test_a_fault_is_found(function: Callable[..., Any], words: str) -> None:
    assert any(words in line for line in findings(report(function))), findings(report(function))


def always_one(completions: list[str]) -> list[float]:
    """Return 1 for every completion."""
    return [1.0] * len(completions)


def test_every_probe_case_can_be_scored() -> None:
    result = findings(report(always_one))
    names = list(report(accuracy)["traps"])
    assert len(names) == 10
    for name in names:
        assert f"'{name}' scores as much as the correct answer on 12 of 12 examples" in result


def nan_on_empty(completions: list[str]) -> list[float]:
    """Return NaN for an empty completion."""
    return [float(len(text) or "nan") for text in completions]


def test_a_score_that_is_no_number_is_a_finding() -> None:
    assert any("'empty' makes it fail: returned nan" in line for line in findings(report(nan_on_empty)))


def runs(completions: list[str], tests: list[str]) -> list[float]:
    """Check a program by its tests: no column has an answer."""
    return [float(text.strip().endswith(test)) for text, test in zip(completions, tests, strict=True)]


def test_demonstrations_are_correct_if_no_column_has_answers() -> None:
    examples = [{"prompt": f"add {n}", "tests": f"x+{n}", "demonstration": f"return x+{n}"} for n in range(4)]
    result = report(runs, examples=examples, answer=None)
    assert (result["answer"], result["best_form"]) == ("demonstration", "demonstration")
    assert result["gold"]["demonstration"]["mean"] == 1.0
    assert result["traps"]["wrong but confident"]["mean"] == 0.0
    assert findings(result) == ["none"]


def last_box(completions: list[str], answer: list[str]) -> list[float]:
    """Score the last line only."""
    return [float((text.splitlines() or [""])[-1] == right) for text, right in zip(completions, answer, strict=True)]


def test_a_last_answer_parser_does_not_score_enumerations() -> None:
    assert report(last_box)["traps"]["all answers, one after the other"]["mean"] == 0.0


def in_words(completions: list[str], answer: list[str]) -> list[float]:
    """Accept only an unusual form."""
    return [float(text == f"It equals <<{right}>>") for text, right in zip(completions, answer, strict=True)]


def test_unknown_answer_format() -> None:
    assert any("pays its own reference answer nothing: given text" in line for line in findings(report(in_words)))
    result = report(in_words, forms={"mine": "It equals <<{answer}>>"})
    assert result["gold"]["mine"]["mean"] == 1.0
    assert findings(result) == ["an example without an answer is scored 0: None would leave it out"]


async def waits(completions: list[str], answer: list[str]) -> list[float | None]:
    """Score asynchronously."""
    return accuracy(completions, answer)


def test_asynchronous_rewards_and_examples_without_answers() -> None:
    assert findings(report(waits)) == ["none"]
    result = report(format, examples=[{"prompt": "write"}, {"prompt": "more"}], answer=None)
    assert result["gold"] == {}
    assert "wrong but confident" not in result["traps"]
    assert result["traps"]["absurdly long"]["as_good_as_gold"] is None
    assert LONG > 10_000


def rlm(*words: str) -> Any:
    return CliRunner().invoke(app, ["reward", "probe", *words])


def test_on_the_command_line(tmp_path: Path) -> None:
    result = rlm("accuracy", "--rows", "4")
    assert result.exit_code == 0, result.output
    assert "findings\n  - none" in result.output
    lenient = rlm("accuracy", "untagged=last_number", "--json", "--rows", "4")
    result = json.loads(lenient.output)
    assert result["gold"]["sentence"]["mean"] == 1.0
    assert result["full_name"] == "builtin/accuracy"
    wrong = rlm("acuracy")
    assert wrong.exit_code == 2
    part = tmp_path / "mine.py"
    part.write_text(
        "from rlm_plugins import hookimpl\n\ndef mine(completions, target):\n    return [0.0] * len(completions)\n\n"
        "@hookimpl\ndef rlm_rewards():\n    return {'mine': mine}\n"
    )
    missing = rlm("mine", "--load", str(part))
    assert missing.exit_code == 2
    assert "requires the column 'target'" in missing.output


RECIPE = """
environment: {name: addition, digits: 2, test_rows: 6}
rewards: [{name: accuracy, as: right, untagged: boxed}, {name: format, weight: 0.1}]
model: {name: scratch}
algorithm: grpo
"""


def test_examples_and_other_rewards_of_a_recipe(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(RECIPE)
    result = json.loads(rlm("right", "--recipe", str(file), "--json").output)
    assert result["gold"]["box"]["mean"] == 1.0
    assert result["rows"] == 6
    assert [each["with"] for each in result["agreement"]] == ["format"]
    changed = json.loads(rlm("right", "rewards.right.untagged=wrong", "--recipe", str(file), "--json").output)
    assert changed["gold"]["box"]["mean"] == 0.0
    other = json.loads(rlm("length", "--recipe", str(file), "--json").output)
    assert [each["with"] for each in other["agreement"]] == ["right", "format"]


def test_a_reward_of_episodes_cannot_be_probed() -> None:
    done = CliRunner().invoke(app, ["reward", "probe", "episode_return"])
    assert done.exit_code == 2
    assert "which a probe cannot construct" in done.output
