"""The family `mathematics`: `math_accuracy` makes no mistake on it."""

from __future__ import annotations

from typing import Any

import pytest
from rlm_audit.command import audit
from rlm_audit.mathematics import FAMILY
from rlm_testing.fake_packages import registered

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
    report = audit("math_accuracy", PATIENT, number=len(FAMILY.generators) // 4, seed=19)
    assert report["cases"] > 0.97 * (len(FAMILY.generators) // 4)
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
