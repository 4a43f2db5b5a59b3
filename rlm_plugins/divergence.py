"""Divergence of a training: numbers that are not finite, or larger than any that training can recover from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rlm_plugins.errors import PartError, RlmError
from rlm_plugins.lazy import torch

LARGEST = 1e8
"""Largest loss and largest norm of a gradient."""
GROWTH = 10.0
"""The largest weight may be this many times 1 + what it was before the first step."""


class Divergence(RlmError):
    """Training diverged.

    Args:
        problem: One sentence.
        where: The model.
        hint: The next step for the user.
    """

    is_before_update = False


class LossDivergence(Divergence, PartError):
    """Loss that is not finite; its place is the policy or a part, whichever comes first."""

    is_before_update = True


def check_number(value: float, name: str, step: int) -> None:
    """Check a loss, or the norm of a gradient, before it changes a weight.

    Raises:
        Divergence: It is not finite, or too large.
    """
    if not abs(value) <= LARGEST:
        error = Divergence(f"training diverged in step {step + 1}: {name} is {value:g}")
        error.is_before_update = True
        raise error


def largest(weights: Sequence[torch.Tensor]) -> float:
    """Return max |w|; NaN if any weight is."""
    if not weights:
        return 0.0
    norms = torch._foreach_norm([w.detach() for w in weights], math.inf)
    return float(torch.stack([norm.float().to(norms[0].device) for norm in norms]).amax())


def check_weights(weights: Sequence[torch.Tensor], before: float, name: str, step: int) -> None:
    """Check weights after an optimizer step.

    Args:
        weights: Those that are trained.
        before: max |w| before the first step.
        name: Of the model.
        step: Number of optimizer steps done before.

    Raises:
        Divergence: One of them is not finite, or has grown too much.
    """
    value = largest(weights)
    if not value <= GROWTH * (1 + before):
        grown = f"; before the first step it was {before:g}" if math.isfinite(value) else ""
        raise Divergence(f"training diverged in step {step + 1}: the largest weight of {name} is {value:g}{grown}")


@contextmanager
def nonfinite_logits(step: int) -> Iterator[None]:
    """Raise the error of torch for probabilities that are not finite as a :class:`Divergence`."""
    try:
        yield
    except RuntimeError as error:
        if "probability tensor" not in str(error):
            raise
        raise Divergence(f"training diverged: after step {step} the logits of the policy are not finite") from None
