"""Which token comes next, drawn for the rows that are left as if all were."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

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
    noise = _noise(rows, of, p)
    return _possible(p, torch.div(p, noise, out=noise).argmax(-1))


def _noise(rows: torch.Tensor, of: int, like: torch.Tensor) -> torch.Tensor:
    """Exp(1) for each word of these rows (L, V), with the generator left as if it had been drawn for all `of`.

    That is ``-log(1 - u)``: the uniform numbers must be drawn for all, the logarithm, which is most of the work, need
    not be taken of all.
    """
    shape = of, like.shape[-1]
    if like.device.type != "cpu" or not exponential_is_inverse():
        noise = torch.empty(shape, device=like.device).exponential_()
        return noise if len(rows) == of else noise[rows]
    u = _uniform(*shape)
    return _exponential(u if len(rows) == of else u[rows])


def _uniform(*shape: int) -> torch.Tensor:
    return torch.rand(shape, dtype=torch.float64)


def _exponential(u: torch.Tensor) -> torch.Tensor:
    return u.neg_().log1p_().neg_().float()


@cache
def exponential_is_inverse() -> bool:
    """Whether torch draws Exp(1) on this machine from its uniform numbers, bit for bit; another build may not."""
    count = 1 << 14
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)
        usual, after = torch.empty(count).exponential_(), torch.get_rng_state()
        torch.manual_seed(0)
        return torch.equal(_exponential(_uniform(count)), usual) and torch.equal(torch.get_rng_state(), after)


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
