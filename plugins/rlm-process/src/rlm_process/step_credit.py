"""Advantage of a step from the values before and after it."""

from __future__ import annotations

from collections.abc import Sequence


def step_advantages(rewards: Sequence[float], values: Sequence[float | None]) -> list[float]:
    """Compute the advantage of each step.

    Âₖ = rₖ + Vₖ₊₁ − Vₖ. VinePPO, arXiv 2410.01679 §4.

    Args:
        rewards: Reward of each step.
        values: Value of the state before each step; 0 after the last. None: unknown. Then it is replaced by the step's
            reward plus the value of the next state; if all later values are unknown, this is the remaining return.

    Returns:
        Advantage of each step.

    >>> step_advantages([0.0, 1.0], [0.25, 0.75])
    [0.5, 0.25]
    >>> step_advantages([0.0, 0.0, 1.0], [0.5, 0.75, None])  # an unknown value gives the last step an advantage of 0
    [0.25, 0.25, 0.0]
    """
    advantages: list[float] = []
    next_value = 0.0
    for reward, value in zip(reversed(rewards), reversed(values), strict=True):
        value_before = reward + next_value if value is None else value
        advantages.append(reward + next_value - value_before)
        next_value = value_before
    return advantages[::-1]
