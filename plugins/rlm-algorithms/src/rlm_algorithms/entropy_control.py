"""Covariance of log-probs and advantages: the tokens that would reduce the entropy most (Clip-Cov, KL-Cov)."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat

from rlm_plugins.equation.batch import Batch, Log
from rlm_plugins.equation.knobs import Share
from rlm_plugins.equation.statistics import kl_estimate
from rlm_plugins.lazy import torch


def clip_cov(
    step_batch: Batch,
    step_batch_rows: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    step: int,
    log: Log | None = None,
    *,
    share: Share = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
    epsilon: NonNegativeFloat = 1.0,
    epsilon_high: NonNegativeFloat | None = None,
) -> Float[torch.Tensor, "B T"]:
    """c = 0 for a few random tokens of those that would reduce the entropy most, 1 for the rest.

    Clip-Cov, arXiv 2505.22617: `share` · N tokens are drawn, at least one; N counts the trained tokens. Candidates have
    low < (log π − mean)(Â − mean) < high, and a gradient after the policy loss's clip. Set `epsilon` and `epsilon_high`
    to the values of that clip. Means, N and draw are those of the complete optimizer step, however it is split. The
    libraries use each micro-batch, and so draw at least one token from each.

    The draw is a pure function of the step, the index of the completion in it and the position of the token. So it is
    equal on all ranks and in a resumed run.

    Here the middle token has 5.2, above `high`, the others 1.3:

    >>> mask, advantages = torch.ones(1, 3, dtype=torch.bool), torch.tensor([[1.0, -2.0, 1.0]])
    >>> step_batch = Batch(logp=torch.tensor([[-0.1, -4.0, -0.1]]), advantages=advantages, mask=mask)
    >>> clip_cov(step_batch, torch.tensor([0]), mask, 0, share=1.0).tolist()
    [[0.0, 1.0, 0.0]]
    """
    cov = covariance(step_batch.logp, step_batch.advantages, step_batch.mask)
    candidates = (cov > low) & (cov < high) & step_batch.mask
    if step_batch.ratio is not None:
        upper = 1 + (epsilon if epsilon_high is None else epsilon_high)
        positive, negative = step_batch.advantages > 0, step_batch.advantages < 0
        candidates &= ~((positive & (step_batch.ratio > upper)) | (negative & (step_batch.ratio < 1 - epsilon)))
    noise = _uniform(step, cov.shape[0], cov.shape[1], cov.device)
    batch_selected = top_mask(noise.where(candidates, -torch.inf), token_count(step_batch.mask, share))
    selected = batch_selected[step_batch_rows, : mask.shape[1]]
    if log is not None:
        log("drawn", selected.float())
    return (~selected).to(step_batch.logp.dtype)


def kl_cov(
    logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    step_batch: Batch,
    step_batch_rows: Int[torch.Tensor, "B"],
    *,
    share: Share = 2e-3,
) -> Float[torch.Tensor, "B T"]:
    """KL penalty to the old policy on the few tokens that would reduce the entropy most (KL-Cov).

    Ω = |log π − log π_old| where C ≥ top(C, share) and |C| > 0, else 0, with C = (log π − mean log π) (Â − mean Â):
    `top` is the least of the largest share · N numbers, one at least. KL-Cov, arXiv 2505.22617: `share` 2e-3 for its 7B
    model, 2e-4 for 32B, beta 1, no clip (policy loss `unclipped`).

    Means, N (the number of trained tokens) and the selection are over the complete optimizer step, however it is split
    (the libraries use each micro-batch). If all its advantages are equal, the covariance and the penalty are 0. Ties
    are selected together. On policy value and gradient are 0.

    >>> mask, advantages = torch.ones(1, 3, dtype=torch.bool), torch.tensor([[1.0, 0.0, -1.0]])
    >>> logp, old = torch.tensor([[-1.0, -2.0, -6.0]]), torch.tensor([[-1.5, -2.5, -6.5]])
    >>> kl_cov(logp, old, Batch(logp=logp, advantages=advantages, mask=mask), torch.tensor([0])).tolist()
    [[0.0, 0.0, 0.5]]
    """
    cov = covariance(step_batch.logp, step_batch.advantages, step_batch.mask)
    selected = top_mask(cov, token_count(step_batch.mask, share)) & (cov != 0)
    return kl_estimate(logp, old_logp, "abs").where(selected[step_batch_rows, : logp.shape[1]], 0.0)


def covariance(
    logp: Float[torch.Tensor, "B T"], advantages: Float[torch.Tensor, "B #T"], mask: Bool[torch.Tensor, "B T"]
) -> Float[torch.Tensor, "B T"]:
    """(log π − mean) · (Â − mean), means over the trained tokens; −∞ outside the mask. arXiv 2505.22617. No gradient.

    >>> mask = torch.tensor([[True, True, False]])
    >>> covariance(torch.tensor([[-1.0, -3.0, 0.0]]), torch.tensor([[1.0, 0.0, 9.0]]), mask).tolist()
    [[0.5, 0.5, -inf]]
    """
    count = mask.sum().clamp(min=1)
    centered = [x - x.where(mask, 0.0).sum() / count for x in (logp.detach(), advantages.expand_as(logp))]
    return (centered[0] * centered[1]).where(mask, -torch.inf)


def token_count(mask: Bool[torch.Tensor, "B T"], share: float) -> int:
    """Return the number of tokens in a share of the trained ones, rounded down, at least one.

    >>> token_count(torch.ones(2, 5, dtype=torch.bool), 0.25), token_count(torch.ones(2, 5, dtype=torch.bool), 2e-4)
    (2, 1)
    """
    return max(1, int(share * int(mask.sum())))


def top_mask(x: Float[torch.Tensor, "B T"], count: int) -> Bool[torch.Tensor, "B T"]:
    """Return the mask of the `count` largest numbers above −∞ (all, if there are fewer); ties with the last included.

    >>> top_mask(torch.tensor([[3.0, 1.0], [2.0, -torch.inf]]), 2).tolist()
    [[True, False], [True, False]]
    """
    least = x.flatten().topk(min(count, x.numel())).values[-1:]
    return (x >= least) & (x > -torch.inf)


def _uniform(
    key: int, rows: int, columns: int, device: torch.device | None = None
) -> Float[torch.Tensor, "rows columns"]:
    """Return pseudo-random numbers in [0, 1), each a pure function of key, row and column.

    More rows or more columns do not change the others.

    >>> bool((_uniform(7, 3, 9)[:2, :4] == _uniform(7, 2, 4)).all())
    True
    >>> round(_uniform(7, 100, 100).mean().item(), 2)
    0.5
    """
    seed = _hash(torch.tensor(key + 1, device=device))
    row = _hash(seed + torch.arange(rows, device=device)).unsqueeze(1)
    return _hash(row + torch.arange(columns, device=device)).double() / 2.0**32


def _hash(x: torch.Tensor) -> torch.Tensor:
    """Hash `x` to 32 bits: multiply and xor-shift, three times (no product overflows int64)."""
    x = x & 0xFFFFFFFF
    for _ in range(3):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return x ^ (x >> 16)
