"""Which token comes next, drawn for the rows that are left as if all were."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Float, Int

Draw = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""(scores of the rows that are left, their numbers among all, how many there were) → a token for each."""
PIECE, MANY = 128, 2**15
"""Numbers of a row that are looked at together for the largest, where there are so many in all."""


def greedy(scores: Float[torch.Tensor, "L V"], rows: Int[torch.Tensor, "L"], of: int) -> Int[torch.Tensor, "L"]:  # noqa: F821
    """The likeliest."""
    return largest(scores)


class AsMultinomial:
    """``argmax p / e``, ``e ~ Exp(1)``: what `torch.multinomial` would draw with these rows among `of`.

    The tokens, and the state of the generator after them, are the same as if nobody had left: ``e = -log(1 - u)``, and
    the uniform numbers are drawn for all rows, also for those that are done. The logarithm, which is most of the work,
    is taken of the others only. There is room for the numbers from token to token: fresh memory costs as much as they.
    """

    def __init__(self) -> None:
        self._room = torch.empty(0, dtype=torch.float64)

    def __call__(
        self,
        scores: Float[torch.Tensor, "L V"],
        rows: Int[torch.Tensor, "L"],  # noqa: F821
        of: int,
    ) -> Int[torch.Tensor, "L"]:  # noqa: F821
        p = scores.softmax(-1)
        noise = self._noise(rows, of, p)
        return _possible(p, largest(torch.div(p, noise, out=noise)))

    def _noise(self, rows: torch.Tensor, of: int, like: torch.Tensor) -> torch.Tensor:
        """e of these rows (L, V)."""
        shape = of, like.shape[-1]
        if like.device.type != "cpu" or not exponential_is_inverse():
            noise = torch.empty(shape, device=like.device).exponential_()
            return noise if len(rows) == of else noise.index_select(0, rows)
        u = torch.rand(shape, dtype=torch.float64, out=self._room)
        return _exponential(u if len(rows) == of else u.index_select(0, rows))


def _exponential(u: torch.Tensor) -> torch.Tensor:
    """Of uniform numbers in float64, which are lost."""
    return u.neg_().log1p_().float().neg_()


@cache
def exponential_is_inverse() -> bool:
    """Whether torch draws Exp(1) on this machine from its uniform numbers, bit for bit; another build may not."""
    count = 1 << 14
    one, other = (torch.Generator().manual_seed(0) for _ in range(2))
    usual = torch.empty(count).exponential_(generator=one)
    found = _exponential(torch.rand(count, dtype=torch.float64, generator=other))
    return torch.equal(found, usual) and torch.equal(other.get_state(), one.get_state())


def largest(x: Float[torch.Tensor, "L V"]) -> Int[torch.Tensor, "L"]:  # noqa: F821
    """Where each row is largest: torch's own argmax, the first of equals and of NaN.

    On a CPU torch looks for a place number by number, and for a value at many numbers at once; so the piece of a row
    that holds the largest value is found first.
    """
    if x.device.type != "cpu" or x.numel() < MANY or x.shape[-1] % PIECE:
        return x.argmax(-1)
    pieces = x.unflatten(-1, (-1, PIECE))
    which = pieces.amax(-1).argmax(-1)
    within = pieces[torch.arange(len(x)), which].argmax(-1)
    return which * PIECE + within


def by_inverse(scores: Float[torch.Tensor, "L V"], rows: Int[torch.Tensor, "L"], of: int) -> Int[torch.Tensor, "L"]:  # noqa: F821
    """The first token whose cumulated probability exceeds a uniform number: one number a row instead of V.

    In float64: beside 1 a float32 has no room for the unlikely words of a large vocabulary.
    """
    p = scores.softmax(-1)
    reached = p.cumsum(-1, dtype=torch.float64)
    whole = reached[:, -1:].contiguous()
    level = torch.rand(of, 1, dtype=torch.float64, device=p.device)[rows] * whole
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
