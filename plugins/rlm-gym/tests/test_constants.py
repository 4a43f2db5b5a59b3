"""No constant and no parroting answer is paid, in any task; the audit's cases belong to their class."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed: pip install ./plugins/rlm-gym")
pytest.importorskip("rlm_audit", reason="needs rlm-audit")

from rlm_audit import Case
from rlm_audit.audit import Audit
from rlm_gym import gym_score, tasks
from rlm_gym.audit_cases import DRAWN, FAMILY, says_the_same
from rlm_gym.numeric_answers import is_plausible, number
from rlm_gym.serialization import serialize


@pytest.fixture(autouse=True)
def _hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")


def score(cases: Sequence[Case], completions: Sequence[str]) -> list[float | None]:
    columns = [[case.columns[name] for case in cases] for name in ("entry", "task")]
    return gym_score(completions, *columns, seconds=20.0)


def entry(task: str, answer: str, **metadata: object) -> str:
    settings = tasks.settings(task, None, {}, task)
    item = next(iter(tasks.items(task, settings, "test")))
    item = {**item, "answer": answer, "metadata": {**item["metadata"], **metadata}}
    return serialize({"task": task, "settings": settings, "item": item})


@pytest.mark.parametrize(
    ("task", "reference", "metadata", "wrong", "right"),
    [
        ("coin_flip", "0.03125", {}, ("0", "0.0", "1e-9", "0.0313" * 2, "nan"), ("0.03125", "1/32", "0.0312")),
        ("coin_flip", "0.00006103515625", {}, ("0", "0.0001", "-0.00006"), ("1/16384", "6.1e-5")),
        ("complex_arithmetic", "2 + 3i", {"result": (2.0, 3.0)}, ("nan", "nan+nanj", "nanj", "2"), ("2+3i", "2.0+3i")),
        ("gsm_symbolic", "1", {}, ("-1", "1/2"), ("1", "1.0")),
    ],
)  # fmt: skip
def test_numbers_are_compared_with_their_size(
    task: str, reference: str, metadata: dict[str, object], wrong: Sequence[str], right: Sequence[str]
) -> None:
    texts = [*wrong, *right]
    found = gym_score(texts, [entry(task, reference, **metadata)] * len(texts), [task] * len(texts), seconds=20.0)
    assert dict(zip(texts, found, strict=True)) == {**dict.fromkeys(wrong, 0.0), **dict.fromkeys(right, 1.0)}


def test_plausibility_of_numbers() -> None:
    assert number("9" * 2000) is None
    assert number("1e99999") is None
    assert is_plausible("nancy", "nancy")
    assert is_plausible("nan", "nan")
    assert not is_plausible("1e308i", "1i")
    assert says_the_same("1.50", "3/2")
    assert not says_the_same("0", "")
    assert len(DRAWN) > 150


@pytest.mark.slow
def test_no_constant_is_paid_in_a_sample_of_tasks() -> None:
    names = [f"constants: {task}" for task in random.Random(0).sample(tasks.names(), 3)]
    names += ["constants: coin_flip", "constants: complex_arithmetic", "the reference answer"]
    report = Audit(score, FAMILY).report(60, names)
    assert [each["examples"] for each in report["classes"] if each["examples"]] == []


def test_no_constant_is_paid_in_any_task() -> None:
    report = Audit(score, FAMILY).report(12 * len(FAMILY.generators))
    assert [each["class"] for each in report["classes"]] == [*FAMILY.generators]
    assert [each["class"] for each in report["classes"] if not each["cases"]] == []
    assert [each["examples"] for each in report["classes"] if each["examples"]] == []
