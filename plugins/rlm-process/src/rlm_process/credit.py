"""The credit of a step: what it was worth by the values before and after it."""

from __future__ import annotations

from collections.abc import Sequence


def step_advantages(rewards: Sequence[float], values: Sequence[float | None]) -> list[float]:
    """What each step of an answer added.

    Âₖ = rₖ + Vₖ₊₁ − Vₖ. VinePPO, arXiv 2410.01679 §4.

    Args:
        rewards: Of each step.
        values: Of the state before each step; 0 after the last. None: not known; then a state is worth what was paid
            from there on, if the values after it are not known either, and what the next is worth otherwise.

    >>> step_advantages([0.0, 1.0], [0.25, 0.75])
    [0.5, 0.25]
    >>> step_advantages([0.0, 0.0, 1.0], [0.5, 0.75, None])  # the last step did what was to be expected of it
    [0.25, 0.25, 0.0]
    """
    advantages: list[float] = []
    after = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        before = reward + after if value is None else value
        advantages.append(reward + after - before)
        after = before
    return advantages[::-1]
