"""What a reward may return: a list of numbers, one per completion. TRL trains on a dict's keys and on infinity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlm_plugins.rewards.fault import Fault

LARGEST = 3.4e38
"""Beyond this a reward is infinite in the float32 that TRL keeps it in."""


def listed(said: Any, count: int) -> Sequence[Any]:
    """What was returned as a sequence of `count`.

    Raises:
        Fault: It is something else.
    """
    scores = said.tolist() if hasattr(said, "tolist") else said
    if not isinstance(scores, Sequence) or isinstance(scores, str | bytes):
        problem = f"returned {type(said).__name__}: {brief(said)}"
    elif len(scores) != count:
        problem = f"returned {len(scores)} scores for {count} completions: {brief(scores)}"
    else:
        return scores
    raise Fault(problem, value=said, allowed=allowed(count), whole=True)


def number(score: Any) -> float | None:
    """One of them as a number that can be trained on, or None: does not apply.

    Raises:
        Fault: It is none.
    """
    if isinstance(score, Fault):  # what kept this row from having one
        raise score
    plain = _item(score)
    if plain is None:
        return None
    if not isinstance(plain, int | float):
        raise Fault(f"returned {brief(score)} ({type(score).__name__})", value=score)
    if not -LARGEST <= plain <= LARGEST:  # NaN is not between them either
        raise Fault(f"returned {brief(plain)}", value=score)
    return float(plain)


def _item(score: Any) -> Any:
    """A number of torch or numpy as Python's; anything else as it is."""
    try:
        return score.item() if hasattr(score, "item") else score
    except (TypeError, ValueError, RuntimeError):  # several numbers in one tensor
        return score


def allowed(count: int) -> str:
    """What would be right."""
    return f"a list of {count} numbers (None: does not apply)"


def brief(value: Any) -> str:
    """A value short enough for a message; not every object can be written down."""
    try:
        text = repr(value)
    except Exception as error:
        return f"something whose repr raises {type(error).__name__}"
    return text if len(text) < 80 else f"{text[:80]}…"
