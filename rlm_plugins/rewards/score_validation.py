"""Validation of what a reward returns: a list of numbers, one per completion.

TRL would train on a dict's keys and on infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlm_plugins.rewards.fault import Fault

LARGEST = 3.4e38
"""Largest reward; beyond it, the float32 of TRL is infinite."""


def validate_scores(returned: Any, count: int) -> Sequence[Any]:
    """Return what a reward returned as a sequence of `count` entries.

    Raises:
        Fault: It is anything else.
    """
    scores = returned.tolist() if hasattr(returned, "tolist") else returned
    if not isinstance(scores, Sequence) or isinstance(scores, str | bytes):
        problem = f"returned {type(returned).__name__}: {brief(returned)}"
    elif len(scores) != count:
        problem = f"returned {len(scores)} scores for {count} completions: {brief(scores)}"
    else:
        return scores
    raise Fault(problem, value=returned, allowed=allowed(count), invalid_list=True)


def validate_score(score: Any) -> float | None:
    """Return a score as a finite float, or None: the reward does not apply.

    Raises:
        Fault: It is anything else, or the fault that stands in its place.
    """
    if isinstance(score, Fault):
        raise score
    x = _item(score)
    if x is None:
        return None
    if not isinstance(x, int | float):
        raise Fault(f"returned {brief(score)} ({type(score).__name__})", value=score)
    if not -LARGEST <= x <= LARGEST:  # also false for NaN
        raise Fault(f"returned {brief(x)}", value=score)
    return float(x)


def _item(score: Any) -> Any:
    """Return a number of torch or numpy as Python's; anything else unchanged."""
    try:
        return score.item() if hasattr(score, "item") else score
    except (TypeError, ValueError, RuntimeError):  # a tensor of several numbers
        return score


def allowed(count: int) -> str:
    """Return the expected result, for messages."""
    return f"a list of {count} numbers (None: does not apply)"


def brief(value: Any) -> str:
    """Return the repr of a value, cut for messages; some reprs raise."""
    try:
        text = repr(value)
    except Exception as error:
        return f"something whose repr raises {type(error).__name__}"
    return text if len(text) < 80 else f"{text[:80]}…"
