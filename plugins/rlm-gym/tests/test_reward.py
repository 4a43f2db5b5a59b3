"""The reward `gym_score`: contract, answer extraction, partial credit, and scorers that would execute the answer."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install ./plugins/rlm-gym")

from rlm_gym import gym_score, scoring, tasks
from rlm_gym.sandboxed_scorer import EVALUATING_TASKS, EXPRESSION_TASKS
from rlm_gym.serialization import serialize
from rlm_sandbox import Program
from rlm_testing import conformance


def entry(task: str, answer: str | None = None, **settings: Any) -> str:
    """Return the serialized entry of a test item; `answer` overrides the reference answer."""
    chosen = tasks.settings(task, None, settings, task)
    item = next(islice(tasks.items(task, chosen, "test"), 1))
    return serialize({"task": task, "settings": chosen, "item": {**item, "answer": answer or item["answer"]}})


def score(task: str, entry: str, *texts: str, **knobs: Any) -> list[float | None]:
    return gym_score(list(texts), [entry] * len(texts), [task] * len(texts), **knobs)


@pytest.fixture(autouse=True)
def _hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")


GCD = entry("gcd", "12")
test_laws = conformance(
    "rlm_rewards",
    gym_score,
    columns={"entry": [GCD, None], "task": ["gcd"], "completions": ["12", "<answer>12</answer>", "13", "it is 12"]},
)


def test_answer_is_the_content_of_its_block() -> None:
    texts = [
        "<think>13</think><answer> 12\n</answer>",
        "12",
        "<think>…</think>12",
        "<answer>12</answer> or <answer>13</answer>",
        "<answer>12",
        "<think>12",
        "",
        "1 2 3 4 6 12",
    ]
    assert score("gcd", GCD, *texts) == [1, 1, 1, 0, 0, 0, 0, 0]
    assert score("gcd", GCD, "12", "<answer>12</answer>", untagged="wrong") == [0, 1]


def test_partial_credit_is_the_scorers_number() -> None:
    assert score("gcd", GCD, "12", "it's 12.", credit="partial") == [1.0, 0.25]


def test_only_and_logged_metrics() -> None:
    logged: dict[str, float] = {}
    rows = (["12", "12", "3", "13"], [GCD, GCD, None, GCD], ["gcd", "lcm", "gcd", "gcd"], logged.__setitem__)
    assert gym_score(*rows, only="gcd") == [1.0, None, None, 0.0]
    assert logged == {}
    assert gym_score(*rows) == [1.0, 1.0, None, 0.0]
    assert logged == {"gym/late": 0.0, "gym/failed": 0.0, "gym/gcd": 0.5, "gym/lcm": 1.0}


@pytest.mark.parametrize("task", EVALUATING_TASKS)
def test_program_as_answer_has_no_effect_and_scores_zero(task: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    mark = tmp_path / "was here"
    attacks = [
        f"__import__('os').system('touch {mark}')",
        f"open('{mark}', 'w')",
        f"[__import__('pathlib').Path('{mark}').touch()]",
        "9**9**9",
        "[9**9**9]",
        "(lambda: 24)()",
    ]
    given = entry(task)
    score(task, given, "1")  # starts the sandbox
    logged: dict[str, float] = {}
    count = len(attacks)
    scores = gym_score(attacks, [given] * count, [task] * count, logged.__setitem__, credit="partial", seconds=30.0)
    assert scores == [pytest.approx(0, abs=0.05)] * count
    assert logged.get("gym/late", 0) == 0, "no attack was executed"
    assert not mark.exists()


def test_hanging_scorer_is_killed_and_the_others_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = "def score(entry, answer):\n    while answer == 'hang': pass\n    return float(answer)"
    monkeypatch.setattr(scoring, "SCORER", Program(hangs))
    logged: dict[str, float] = {}
    texts = ["1", "hang", "0.5", "no number", "1.0", "7", "inf"]
    found = gym_score(texts, [GCD] * 7, ["gcd"] * 7, logged.__setitem__, credit="partial", seconds=1.0)
    assert found == [1.0, 0.0, 0.5, 0.0, 1.0, 0.0, 0.0]
    assert (logged["gym/late"], logged["gym/failed"]) == (1, 1)


@pytest.mark.parametrize(
    ("text", "sum_", "polynomial", "integral"),
    [
        ("(3 + 4) * 2 / 1 - 5", True, True, True),
        ("sin(2*x)/2 + sqrt(x) + x**(5/2) + C", False, False, True),
        ("x.__class__", False, False, False),
        ("Integral(x, x)", False, False, False),
        ("9**9**9", False, False, False),
        ("2**(999*999)", False, False, False),
        ("1 + 2 # 3", False, False, False),
        ("'a'", False, False, False),
        ("(" * 5000, False, False, False),
        ("-" * 5000 + "1", False, False, False),
    ],
)
def test_arithmetic_grammars(text: str, sum_: bool, polynomial: bool, integral: bool) -> None:
    kinds = [EXPRESSION_TASKS[task] for task in ("countdown", "polynomial_multiplication", "simple_integration")]
    assert [kind.accepts(text) for kind in kinds] == [sum_, polynomial, integral]


def test_literal_answers_still_score() -> None:
    assert score("string_insertion", entry("string_insertion", "AB"), "AB", "['A', 'B']", credit="partial") == [
        1.0,
        0.1,
    ]
    rows = entry("spiral_matrix", "1 2 3")
    assert score("spiral_matrix", rows, "1 2 3", "[1, 2, 3]", "[1, 2]", credit="partial") == [1.0, 0.1, 0.0]


def test_puzzle24_requires_the_given_numbers() -> None:
    item = {"question": "", "answer": "", "metadata": {"numbers": [2, 3, 4, 1]}}
    given = serialize({"task": "puzzle24", "settings": tasks.settings("puzzle24", None, {}, ""), "item": item})
    assert score("puzzle24", given, "2*3*4*1", "(1*2)*3*4", "6+6+6+6", "24", "2*3*4*1 # 9") == [1, 1, 0, 0, 0]


def test_game_of_life_halting_compares_exactly() -> None:
    assert score("game_of_life_halting", entry("game_of_life_halting", "False"), "False", "True", "no idea") == [
        1,
        0,
        0,
    ]


DEMONSTRATIONS = 20
"""Demonstrations per task; fewer of tasks that generate slowly."""


@pytest.mark.slow
def test_demonstrations_of_every_task_score_and_another_answer_does_not() -> None:
    texts, entries, names, unanswered = [], [], [], []
    for task in tasks.names():
        chosen, end = tasks.settings(task, None, {}, task), time.monotonic() + 3.0
        for item in islice(tasks.items(task, chosen, "gold"), DEMONSTRATIONS):
            given = serialize({"task": task, "settings": chosen, "item": item})
            texts += [f"<answer>{item['answer']}</answer>", "<answer>no idea</answer>"]
            entries += [given, given]
            names += [task, task]
            unanswered += [task] * (item["answer"] is None)
            if time.monotonic() > end:
                break
    scores = gym_score(texts, entries, names, seconds=20.0)
    missed = {name for name, value in zip(names[::2], scores[::2], strict=True) if value != 1.0} - {*unanswered}
    rewarded = {name for name, value in zip(names[1::2], scores[1::2], strict=True) if value != 0.0} - {*unanswered}
    assert (missed, rewarded) == (set(), set())
    assert {*unanswered} == {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}


@pytest.mark.parametrize("task", ["intermediate_integration", "gsm_symbolic"])
def test_demonstrations_of_answers_that_are_no_plain_numbers_score(task: str) -> None:
    """Integrals that the generator leaves, simplifications that import modules, fractions among the metadata."""
    chosen = tasks.settings(task, None, {}, task)
    found = [*islice(tasks.items(task, chosen, "demos"), 60)]
    entries = [serialize({"task": task, "settings": chosen, "item": item}) for item in found]
    assert gym_score([f"<answer>{item['answer']}</answer>" for item in found], entries, [task] * 60) == [1.0] * 60
