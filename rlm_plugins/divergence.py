"""Limits of loss, gradient norm and weights beyond which training has diverged."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rlm_plugins.errors import PartError, RlmError
from rlm_plugins.lazy import torch

MAX_LOSS_OR_NORM = 1e8
"""Largest loss and largest norm of a gradient."""
MAX_WEIGHT_GROWTH = 10.0
"""Largest ratio of max |w| to 1 + max |w| before the first step."""


class Divergence(RlmError):
    """Training diverged.

    Args:
        problem: One sentence.
        where: The model.
        hint: The next step for the user.
    """

    is_before_update = False


class LossDivergence(Divergence, PartError):
    """Loss that is not finite; `where` is the policy, or the first part that returned such a number."""

    is_before_update = True


def check_number(value: float, name: str, step: int) -> None:
    """Check a loss, or the norm of a gradient, before it changes a weight.

    Raises:
        Divergence: It is not finite, or too large.
    """
    if not abs(value) <= MAX_LOSS_OR_NORM:
        error = Divergence(f"training diverged in step {step + 1}: {name} is {value:g}")
        error.is_before_update = True
        raise error


def max_abs(weights: Sequence[torch.Tensor]) -> float:
    """Return max |w|; NaN if any weight is."""
    if not weights:
        return 0.0
    norms = torch._foreach_norm([w.detach() for w in weights], math.inf)
    return float(torch.stack([norm.float().to(norms[0].device) for norm in norms]).amax())


def check_weights(weights: Sequence[torch.Tensor], initial: float, name: str, step: int) -> None:
    """Check weights after an optimizer step.

    Args:
        weights: The trained parameters.
        initial: max |w| before the first step.
        name: Name of the model, for the error.
        step: Number of optimizer steps done before.

    Raises:
        Divergence: One of them is not finite, or has grown too much.
    """
    value = max_abs(weights)
    if not value <= MAX_WEIGHT_GROWTH * (1 + initial):
        grown = f"; before the first step it was {initial:g}" if math.isfinite(value) else ""
        raise Divergence(f"training diverged in step {step + 1}: the largest weight of {name} is {value:g}{grown}")


@contextmanager
def nonfinite_logits(step: int) -> Iterator[None]:
    """Convert torch's error for sampling from probabilities that are not finite into a :class:`Divergence`."""
    try:
        yield
    except RuntimeError as error:
        if "probability tensor" not in str(error):
            raise
        raise Divergence(f"training diverged: after step {step} the logits of the policy are not finite") from None
