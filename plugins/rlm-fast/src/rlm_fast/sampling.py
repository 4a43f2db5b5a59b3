"""Selection of the next token, and its recorded statistics; evicted sequences do not change the others' numbers.

Recorded log-probs equal those of a forward pass over the finished sequences if the model does not depend on absolute
positions. The trainer checks that before it uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int

from rlm_plugins.rollout.generator_call import Generation

Sampler = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]
"""(scores of the active sequences (L, V), their indices (L,), number of all sequences) → token ids (L,); −1: none."""
PIECE, MIN_PIECEWISE = 128, 2**15
"""Length of the pieces in which `argmax` searches, and the least number of elements for which that is faster."""


def greedy(scores: Float[torch.Tensor, "L V"], indices: Int[torch.Tensor, "L"], total: int) -> Int[torch.Tensor, "L"]:  # noqa: F821
    """Return the most likely tokens."""
    return argmax(scores)


class MultinomialSampler:
    """``argmax p / e``, ``e ~ Exp(1)``: the tokens that `torch.multinomial` would sample for all `total` sequences.

    Tokens and RNG state are those of the full batch: ``e = -log(1 - u)``, with uniform numbers ``u`` for all sequences,
    finished ones included. The logarithm, which is most of the work, is computed for active sequences only. The buffer
    of the numbers is reused for each token, since new memory costs as much as the numbers.
    """

    def __init__(self) -> None:
        self._buffer = torch.empty(0, dtype=torch.float64)

    def __call__(
        self,
        scores: Float[torch.Tensor, "L V"],
        indices: Int[torch.Tensor, "L"],  # noqa: F821
        total: int,
    ) -> Int[torch.Tensor, "L"]:  # noqa: F821
        p = scores.softmax(-1)
        noise = self._exponential(indices, total, p)
        return _marked(p, argmax(torch.div(p, noise, out=noise)))

    def _exponential(self, indices: torch.Tensor, total: int, like: torch.Tensor) -> torch.Tensor:
        """Return the noise e of the active sequences (L, V)."""
        shape = total, like.shape[-1]
        # Numbers of all sequences are drawn, so that evicted ones do not shift the RNG state.
        if like.device.type != "cpu" or not exponential_is_inverse():
            noise = torch.empty(shape, device=like.device).exponential_()
            return noise if len(indices) == total else noise.index_select(0, indices)
        u = torch.rand(shape, dtype=torch.float64, out=self._buffer)
        return _exponential_from_uniform(u if len(indices) == total else u.index_select(0, indices))


def _exponential_from_uniform(u: torch.Tensor) -> torch.Tensor:
    """Return −log(1 − u) in float32; overwrites u, which is in float64."""
    return u.neg_().log1p_().float().neg_()


@cache
def exponential_is_inverse() -> bool:
    """Return True if this build of PyTorch computes Exp(1) from its uniform numbers by −log(1 − u), bit for bit."""
    count = 1 << 14
    # separate generators, because the check must not change the global RNG state
    exponential, uniform = (torch.Generator().manual_seed(0) for _ in range(2))
    expected = torch.empty(count).exponential_(generator=exponential)
    noise = _exponential_from_uniform(torch.rand(count, dtype=torch.float64, generator=uniform))
    return torch.equal(noise, expected) and torch.equal(uniform.get_state(), exponential.get_state())


def argmax(x: Float[torch.Tensor, "L V"]) -> Int[torch.Tensor, "L"]:  # noqa: F821
    """Return the index of the largest number of each row, as `torch.argmax`: the first of ties and of NaN.

    On a CPU `amax` is vectorized and `argmax` is not, so the piece with the largest number is found first.
    """
    if x.device.type != "cpu" or x.numel() < MIN_PIECEWISE or x.shape[-1] % PIECE:
        return x.argmax(-1)
    pieces = x.unflatten(-1, (-1, PIECE))
    piece = pieces.amax(-1).argmax(-1)
    within = pieces[torch.arange(len(x)), piece].argmax(-1)
    return piece * PIECE + within


def sample_inverse_cdf(
    scores: Float[torch.Tensor, "L V"],
    indices: Int[torch.Tensor, "L"],  # noqa: F821
    total: int,
) -> Int[torch.Tensor, "L"]:  # noqa: F821
    """Sample the first token whose cumulative probability exceeds a uniform number, one per sequence instead of V.

    Cumulative sums are in float64: near 1, float32 cannot represent the unlikely tokens of a large vocabulary.
    """
    p = scores.softmax(-1)
    cdf = p.cumsum(-1, dtype=torch.float64)
    mass = cdf[:, -1:].contiguous()
    level = torch.rand(total, 1, dtype=torch.float64, device=p.device)[indices] * mass
    level = level.minimum(mass.nextafter(torch.zeros_like(mass)))  # rounding must not step over the last token
    token = torch.searchsorted(cdf, level, right=True).squeeze(1).clamp(max=p.shape[-1] - 1)
    return _marked(p, token)


def _marked(p: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
    """Return the tokens, −1 where the probability is 0 or NaN."""
    return token.where(p.gather(-1, token.unsqueeze(-1)).squeeze(-1) > 0, -1)


def generation_from_steps(ids: torch.Tensor, steps: Iterable[tuple[torch.Tensor, ...]]) -> Generation:
    """Build a generation from what each decoding step recorded.

    Args:
        ids: (B, P + T) prompts and completions.
        steps: (indices of the active sequences, their log-probs, their entropies) of each of the T steps.
    """
    columns: list[list[torch.Tensor]] = [[], []]
    for indices, *recorded in steps:
        for column, x in zip(columns, recorded, strict=True):
            column.append(x.new_zeros(len(ids)).index_copy(0, indices, x))
    logp, entropy = (torch.stack(column, 1) for column in columns)
    return Generation(ids, logp, entropy)


def token_statistics(
    logits: Float[torch.Tensor, "L V"],
    token: Int[torch.Tensor, "L"],  # noqa: F821
    config: Any,
) -> tuple[Float[torch.Tensor, "L"], Float[torch.Tensor, "L"]]:  # noqa: F821
    """Return log π(y) and H(π) at the sampling temperature; top-k, top-p and min-p do not change π here."""
    temperature = config.temperature if config.do_sample else None
    z = torch.log_softmax(logits / (temperature or 1.0), -1)
    return z.gather(1, token.unsqueeze(1)).squeeze(1), -torch.linalg.vecdot(z.exp(), z)
