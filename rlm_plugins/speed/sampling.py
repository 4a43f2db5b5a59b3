"""Which token comes next, drawn for the rows that are left as if all were."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int

Draw = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""(scores of the rows that are left, their numbers among all, how many there were) → a token for each."""


def greedy(scores: Float[torch.Tensor, "L V"], rows: Int[torch.Tensor, "L"], of: int) -> Int[torch.Tensor, "L"]:  # noqa: F821
    """The likeliest."""
    return scores.argmax(-1)


def as_multinomial(scores: Float[torch.Tensor, "L V"], rows: Int[torch.Tensor, "L"], of: int) -> Int[torch.Tensor, "L"]:  # noqa: F821
    """``argmax p / e``, ``e ~ Exp(1)``: what `torch.multinomial` would draw with these rows among `of`.

    All the noise is drawn, also of rows that are done: so the tokens, and the state of the generator after them, are
    the same as if nobody had left.
    """
    p = scores.softmax(-1)
    noise = torch.empty(of, p.shape[-1], device=p.device).exponential_()
    noise = noise if len(p) == of else noise[rows]
    return _possible(p, torch.div(p, noise, out=noise).argmax(-1))


def by_inverse(scores: Float[torch.Tensor, "L V"], rows: Int[torch.Tensor, "L"], of: int) -> Int[torch.Tensor, "L"]:  # noqa: F821
    """The first token whose cumulated probability exceeds a uniform number: one number a row instead of V."""
    p = scores.softmax(-1)
    reached = p.cumsum(-1)
    whole = reached[:, -1:].contiguous()
    level = torch.rand(of, 1, device=p.device)[rows] * whole
    level = level.minimum(whole.nextafter(torch.zeros_like(whole)))  # else rounding could step over the last one
    token = torch.searchsorted(reached, level, right=True).squeeze(1).clamp(max=p.shape[-1] - 1)
    return _possible(p, token)


def _possible(p: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """`token`, once its probability is one.

    Raises:
        RuntimeError: The logits hold NaN or infinity; transformers' loop stops there too.
    """
    if not (p.gather(-1, token.unsqueeze(-1)) > 0).all():
        raise RuntimeError("the logits of the policy hold NaN or infinity: no token can be drawn")
    return token
