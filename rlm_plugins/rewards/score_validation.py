"""Validation of the result of a reward: a list of numbers, one per completion.

TRL would train on a dict's keys and on infinity.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from rlm_plugins.rewards.fault import Fault, brief, safe_text
from rlm_plugins.workers.time_limit import is_of_call

__all__ = ["MAX_SCORE", "allowed", "brief", "plain_scores", "validate_score", "validate_scores"]

MAX_SCORE = 3.4e38
"""Largest reward; beyond it, the float32 of TRL is infinite."""


def validate_scores(returned: Any, count: int) -> list[Any]:
    """Return the result of a reward as a list of `count` entries.

    Raises:
        Fault: It is anything else, or the fault that stands in its place.
    """
    if issubclass(type(returned), Fault):  # `isinstance` would call `__class__` of the result
        raise returned
    try:
        scores = returned.tolist() if hasattr(returned, "tolist") else returned
        is_list = isinstance(scores, Sequence) and not isinstance(scores, str | bytes | bytearray)
        entries = list(islice(scores, count + 1)) if is_list else []
        length = len(scores) if is_list else 0
    except BaseException as error:
        raise _unreadable(error, f"returned {type(returned).__name__}, which cannot be read") from error
    if not is_list:
        problem = f"returned {type(returned).__name__}: {brief(returned)}"
    elif len(entries) != count or length != count:
        problem = f"returned {length} scores for {count} completions: {brief(entries)}"
    else:
        return entries
    raise Fault(problem, value=returned, allowed=allowed(count), invalid_list=True)


def validate_score(score: Any) -> float | None:
    """Return a score as a finite float, or None: the reward does not apply.

    Raises:
        Fault: It is anything else, or the fault that stands in its place.
    """
    if issubclass(type(score), Fault):  # `isinstance` would call `__class__` of the score
        raise score
    try:
        x = _item(score)
        number = None if x is None else _number(x)
    except BaseException as error:
        raise _unreadable(error, f"returned {type(score).__name__}, which cannot be read") from error
    if x is None:
        return None
    if number is None:
        raise Fault(f"returned {brief(score)} ({type(score).__name__})", value=score)
    if not -MAX_SCORE <= number <= MAX_SCORE:  # also false for NaN
        raise Fault(f"returned {brief(number)}", value=score)
    return float(number)


def plain_scores(returned: Any, count: int) -> list[float | Fault | None]:
    """Return scores as plain numbers, None and faults: objects without code of the reward.

    Raises:
        Fault: It is no list of `count` entries.
    """
    return [_score_or_fault(score) for score in validate_scores(returned, count)]


def _score_or_fault(score: Any) -> float | Fault | None:
    try:
        return validate_score(score)
    except Fault as fault:
        return fault


def _unreadable(error: BaseException, problem: str) -> BaseException:
    """Return the fault of a value whose methods raise; an interruption by the user is returned unchanged."""
    return Fault(f"{problem}: {safe_text(error)}") if is_of_call(error) else error


def _item(score: Any) -> Any:
    """Return a number of torch or numpy as Python's; anything else unchanged."""
    try:
        return score.item() if hasattr(score, "item") else score
    except (TypeError, ValueError, RuntimeError):  # a tensor of several numbers
        return score


def _number(x: Any) -> int | float | None:
    """Return the value of a number without its own methods, which a subclass may replace; None for all else."""
    if isinstance(x, float):
        return float.__pos__(x)
    return int.__pos__(x) if isinstance(x, int) else None


def allowed(count: int) -> str:
    """Return the expected result, for messages."""
    return f"a list of {count} numbers (None: does not apply)"
