"""`rlm reward audit`: mistakes are counted and shrunk, correct rewards have none, and bad arguments are errors."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from rlm_audit.audit import Audit
from rlm_audit.command import FAMILIES, audit, family_of
from rlm_audit.kinds import MAX_SIZE, Case, Family
from rlm_audit.mathematics import FAMILY as MATHEMATICS
from rlm_testing.fake_packages import registered
from typer.testing import CliRunner

from rlm_plugins.cli import app
from rlm_plugins.errors import RlmError


def doubled(rng: random.Random, size: int) -> Case:
    value = rng.randint(10 ** (size - 1), 10**size)
    return Case({"answer": str(value)}, str(value), True)


def one_more(rng: random.Random, size: int) -> Case | None:
    value = rng.randint(10 ** (size - 1), 10**size)
    return Case({"answer": str(value)}, str(value + 1), False)


FAMILY = Family({"right": doubled, "wrong": one_more}, "so {answer}")


def scorer(is_paid: Callable[[str, str], bool]) -> Callable[[Sequence[Case], Sequence[str]], list[float | None]]:
    def score(cases: Sequence[Case], texts: Sequence[str]) -> list[float | None]:
        return [float(is_paid(str(c.columns["answer"]), t)) for c, t in zip(cases, texts, strict=True)]

    return score


def test_a_correct_reward_makes_no_mistake() -> None:
    report = Audit(scorer(lambda gold, text: text == f"so {gold}"), FAMILY).report(100)
    totals = report["totals"]
    assert (totals["false_accepts"]["mistakes"], totals["false_accepts"]["cases"]) == (0, 50)
    assert totals["false_rejects"]["mistakes"] == 0
    totals = Audit(lambda cases, texts: [1.0] * len(cases), FAMILY).report(100)["totals"]
    assert totals["false_accepts"]["mistakes"] == 50
    assert [each["examples"] for each in report["classes"]] == [[], []]


def test_the_smallest_mistake_is_found_even_if_no_case_of_that_size_was_drawn() -> None:
    """The reward compares the first digit only; the smallest wrong answer with the same one has two digits."""
    report = Audit(scorer(lambda gold, text: text[3] == gold[0]), FAMILY).report(12, ["wrong"])
    (wrong,) = report["classes"]
    assert wrong["mistakes"] > 0
    assert [len(example["answer"]) for example in wrong["examples"]] == sorted(
        len(example["answer"]) for example in wrong["examples"]
    )
    assert len(wrong["examples"][0]["answer"]) == 2


def test_an_unscored_right_answer_is_a_false_reject_and_an_unscored_wrong_one_is_none() -> None:
    report = Audit(lambda cases, texts: [None] * len(cases), FAMILY).report(20)
    assert [each["mistakes"] for each in report["classes"]] == [10, 0]
    assert report["totals"]["unscored"] == 20


def test_same_seed_repeats_and_others_differ() -> None:
    seen: list[list[str]] = []
    for seed in (1, 1, 2):
        seen.append([])
        Audit(lambda cases, texts: seen[-1].extend(texts) or [None] * len(cases), FAMILY, seed=seed).report(40)
    assert seen[0] == seen[1] != seen[2]


@pytest.mark.parametrize(
    ("name", "share"),
    [
        *((name, 12) for name in FAMILIES if name != "gym"),  # its package draws from these
        *(pytest.param(name, 12 if name == "gym" else None, marks=pytest.mark.full) for name in FAMILIES),
    ],
)
def test_each_class_generates_cases_of_one_verdict(
    name: str, share: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # some tasks of reasoning-gym have no cases without it
    if name == "gym":
        pytest.importorskip("reasoning_gym", reason="needs reasoning-gym")
    pytest.importorskip(FAMILIES[name].partition(":")[0], reason="needs the package of the family")
    generators = family_of(name).generators
    for class_name in random.Random(0).sample(sorted(generators), min(len(generators), share or len(generators))):
        generator = generators[class_name]
        rng = random.Random(0)
        attempts = (generator(rng, 1 + attempt % MAX_SIZE) for attempt in range(300))
        found = list(islice((case for case in attempts if case is not None), MAX_SIZE))
        assert len({case.is_right for case in found}) == 1, class_name


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["reward", "audit", *arguments])
    return result.exit_code, result.output if result.exception is None else str(result.exception)


def test_accuracy_has_no_mistake_on_numbers() -> None:
    code, output = run("accuracy", "--number", "210", "--json")
    report = json.loads(output)
    assert code == 0
    assert report["cases"] > 200
    assert not [each for each in report["classes"] if each["mistakes"]]


def test_a_reward_of_trl_is_audited_with_cases_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "guest.py").write_text("def paid(completions, answer, **_):\n    return [1.0] * len(answer)\n")
    (tmp_path / "cases.py").write_text(
        "from rlm_audit import Case, Family\n"
        "def wrong(rng, size):\n    return Case({'answer': '1'}, str(rng.randint(2, 10**size)), False)\n"
        "FAMILY = Family({'wrong': wrong}, 'so {answer}')\n"
    )
    code, output = run("trl", f"function={tmp_path}/guest.py:paid", "--cases", f"{tmp_path}/cases.py:FAMILY")
    assert code == 0
    assert "wrong (paid)" in output
    assert "answer: 1; paid: 2" in output
    assert "%" not in output


def test_the_examples_of_the_readme_are_families() -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text()
    families = []
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.S):
        names: dict[str, Any] = {}
        exec(block, names)
        families.append(names["FAMILY"])
    assert [[*family.generators] for family in families] == [
        [
            *("sum: <a+b>", "sum: <a> + <b>", "sum: \\frac{<2*(a+b)>}{2}"),
            *("sum, with a=a+1", "sum, not: <a>, <b>", "sum, not: <a*b>"),
        ],
        ["off by one"],
    ]
    counts = Audit(scorer(lambda gold, text: text == f"The answer is {gold}."), families[0]).report(120)["classes"]
    assert [each["mistakes"] for each in counts] == [0, 20, 20, 0, 0, 0]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("length", {}, "no cases are known"),
        ("accuracy", {"cases": "poems"}, "unknown cases 'poems'"),
        ("accuracy", {"cases": "rlm_audit.audit:BATCH"}, "expected an rlm_audit.Family"),
        ("accuracy", {"classes": ["spells"]}, "no class of cases starts with 'spells'"),
        ("accuracy", {"form": "nothing"}, "expected a form"),
    ],
)
def test_bad_arguments_are_errors(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RlmError, match=message):
        audit(name, **options)


math = registered("math")
PATIENT = ["seconds=60"]  # a busy machine changes no verdict


def mistakes(report: dict[str, Any], expected: str) -> dict[str, Any]:
    """Return the shortest mistakes of each class whose cases must be `expected`."""
    classes = [each for each in report["classes"] if each["expected"] == expected and each["mistakes"]]
    return {each["class"]: each["examples"] for each in classes}


def require_no_mistakes(report: dict[str, Any]) -> None:
    assert mistakes(report, "wrong") == mistakes(report, "right") == {}
    assert report["totals"]["unscored"] == 0


@pytest.mark.usefixtures("math")
def test_math_accuracy_makes_no_mistake() -> None:
    """One case of a quarter of the classes."""
    report = audit("math_accuracy", PATIENT, number=len(MATHEMATICS.generators) // 4, seed=19)
    assert report["cases"] > 0.97 * (len(MATHEMATICS.generators) // 4)
    require_no_mistakes(report)


@pytest.mark.usefixtures("math")
def test_math_accuracy_makes_no_mistake_among_thousands() -> None:
    report = audit("math_accuracy", PATIENT, number=6_000, seed=20)
    assert report["cases"] > 5_000
    require_no_mistakes(report)


def test_a_reward_that_compares_text_rejects_other_notations() -> None:
    """The audit is able to fail: `accuracy` accepts no other notation of a fraction."""
    classes = ["fraction: \\frac{<3*n>}{<3*d>}", "fraction, with n,d=d,n"]
    report = audit("accuracy", ["untagged=boxed"], cases="mathematics", number=40, classes=classes)
    assert {*mistakes(report, "right")} == {classes[0]}
    assert mistakes(report, "wrong") == {}
