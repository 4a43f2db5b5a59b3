"""What a law is, and which laws a hook has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlm_plugins.testing.part_under_test import Subject

Draw = Callable[[Any], Any]
"""Takes an example from a hypothesis strategy."""
Check = Callable[[Subject, Draw], None]
"""Looks at one example; raises LawBroken."""

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
        name: The word it is known by.
        says: The law, as a sentence.
        hooks: The hooks it holds for.
        check: Looks at one example.
        applies: Whether it means anything for a subject.
        share: Which share of the examples it is tried on; bad manners show on any batch.
    """

    name: str
    says: str
    hooks: tuple[str, ...]
    check: Check
    applies: Callable[[Subject], bool]
    share: float


LAWS: list[Law] = []
"""All laws, in the order in which they are tried."""


def law(
    *hooks: str, applies: Callable[[Subject], bool] = lambda _: True, share: float = 1.0
) -> Callable[[Check], Check]:
    """Makes a function a law of `hooks`: named like it, its docstring the sentence."""

    def enter(check: Check) -> Check:
        says = (check.__doc__ or "").split("\n")[0].rstrip(".")
        LAWS.append(Law(check.__name__, says, hooks, check, applies, share))
        return check

    return enter


def battery(subject: Subject) -> list[Law]:
    """The laws that hold for a subject."""
    return [law for law in LAWS if subject.part.hook in law.hooks and law.applies(subject)]
