"""Early stop by the interval of paired differences between evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from rlm_plugins.evaluation.estimators import paired_interval


def evaluations_without_improvement(scores: Sequence[Sequence[float | None]]) -> int:
    """Return the number of evaluations since the last certain improvement.

    An evaluation is a certain improvement if the 95 % interval of its paired difference from the reference is above
    0. The reference is the last certain improvement, at first the first evaluation, so slow progress adds up.

    Args:
        scores: Of each evaluation, oldest first, the score of every held-out prompt in the same order.
    """
    if not scores:
        return 0
    reference, count = scores[0], 0
    for current in scores[1:]:
        if paired_interval(*differences(reference, current))[0] > 0:
            reference, count = current, 0
        else:
            count += 1
    return count


def differences(before: Sequence[float | None], after: Sequence[float | None]) -> tuple[list[float], float]:
    """Return the differences on prompts that have both scores, and the largest possible difference."""
    pairs = [(a, b) for a, b in zip(before, after, strict=False) if a is not None and b is not None]
    values = list(chain.from_iterable(pairs))
    is_share = all(0.0 <= value <= 1.0 for value in values)
    largest = 1.0 if is_share else max(values) - min(values)
    return [b - a for a, b in pairs], largest
