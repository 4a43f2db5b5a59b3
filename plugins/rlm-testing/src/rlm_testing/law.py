"""Laws of the conformance kit, and the battery of a hook."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlm_testing.part_under_test import Subject

Draw = Callable[[Any], Any]
"""Draws an example from a hypothesis strategy."""
Check = Callable[[Subject, Draw], None]
"""Check of one example, which raises LawBroken."""

STEP = (
    "rlm_shapers",
    "rlm_filters",
    "rlm_advantages",
    "rlm_importance",
    "rlm_policy_losses",
    "rlm_token_weights",
    "rlm_penalties",
    "rlm_aggregators",
)
SCORING = STEP[:3]
LOSS = STEP[3:]


@dataclass(frozen=True)
class Law:
    """One law of the battery.

    Args:
        name: As in test ids and `exceptions`.
        statement: One sentence.
        hooks: The hooks it holds for.
        check: Checks one example.
        applies: Returns True for the subjects that it is about.
        share: Share of the examples that it is checked on; some violations show on any batch.
    """

    name: str
    statement: str
    hooks: tuple[str, ...]
    check: Check
    applies: Callable[[Subject], bool]
    share: float


LAWS: list[Law] = []
"""All laws, in the order of their tests."""


def law(
    *hooks: str, applies: Callable[[Subject], bool] = lambda _: True, share: float = 1.0
) -> Callable[[Check], Check]:
    """Register a function as a law of `hooks`; its docstring, "Check that …", is the statement."""

    def register(check: Check) -> Check:
        statement = (check.__doc__ or "").split("\n")[0].removeprefix("Check that ").rstrip(".")
        LAWS.append(Law(check.__name__, statement, hooks, check, applies, share))
        return check

    return register


def battery(subject: Subject) -> list[Law]:
    """Return the laws that apply to a subject."""
    return [law for law in LAWS if subject.part.hook in law.hooks and law.applies(subject)]
