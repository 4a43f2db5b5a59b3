"""c: how much a token of ℓ counts (hook ``rlm_token_weights``). Without gradient; several multiply."""

from __future__ import annotations

from typing import Annotated

from jaxtyping import Bool, Float
from pydantic import Field, NonNegativeFloat

from rlm_plugins import hookimpl
from rlm_plugins.batch import Log
from rlm_plugins.builtin.rollout_correction import masked_importance, truncated_importance
from rlm_plugins.ingredients.covariance import covariance, largest, share_of
from rlm_plugins.lazy import torch

Share = Annotated[float, Field(ge=0, le=1)]


def complete_rows(truncated: Bool[torch.Tensor, "B"]) -> Float[torch.Tensor, "B 1"]:
    """c = 0 for rows cut off by the length limit, 1 otherwise: an unfinished answer is no wrong answer.

    DAPO's overlong filtering, arXiv 2503.14476 §3.4. The rows stay in every denominator; GRPOConfig's
    ``mask_truncated_completions`` takes them out of it as well.

    >>> complete_rows(torch.tensor([True, False])).tolist()
    [[0.0], [1.0]]
    """
    return (~truncated).float().unsqueeze(1)


def top_entropy(
    entropy: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"], *, share: Share = 0.2
) -> Float[torch.Tensor, "B T"]:
    """c = 1 for the share of tokens with the highest entropy, 0 for the rest: only forks in the road are learned from.

    The 80/20 rule, arXiv 2506.01939: tokens at or above the (1 − `share`) quantile, interpolated, over the micro-batch
    (so the result depends on its size; TRL takes the quantile over all processes). The other tokens stay in every
    denominator. Equal entropies are taken together.

    >>> top_entropy(torch.tensor([[0.1, 2.0, 0.3, 1.0]]), torch.ones(1, 4, dtype=torch.bool), share=0.5).tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """
    live = entropy.detach()[mask].float()
    if live.numel() == 0:
        return torch.zeros_like(entropy)
    return ((entropy.detach() >= live.quantile(1 - share)) & mask).to(entropy.dtype)


def clip_cov(
    logp: Float[torch.Tensor, "B T"],
    ratio: Float[torch.Tensor, "B #T"],
    advantages: Float[torch.Tensor, "B #T"],
    mask: Bool[torch.Tensor, "B T"],
    log: Log | None = None,
    *,
    share: Share = 2e-4,
    low: float = 1.0,
    high: float = 5.0,
    epsilon: NonNegativeFloat = 1.0,
    epsilon_high: NonNegativeFloat | None = None,
) -> Float[torch.Tensor, "B T"]:
    """c = 0 for a few tokens drawn from those that would lower the entropy most, 1 for the rest.

    Clip-Cov, arXiv 2505.22617: of the tokens with low < (log π − mean)(Â − mean) < high that the row's clip (give
    `epsilon` and `epsilon_high` the values it has) leaves a gradient, `share` · N are drawn, one at least; N counts the
    trained tokens. Means, N and draw are the micro-batch's, as in every library: the result depends on its size.

    The draw needs no random state: a number made from a token's log-probability and position, scattered like noise,
    decides. So a resumed run draws the same, and neither padding nor the order of rows matters.

    Here the middle token has 5.2, above `high`, the others 1.3:

    >>> logp, mask = torch.tensor([[-0.1, -4.0, -0.1]]), torch.ones(1, 3, dtype=torch.bool)
    >>> clip_cov(logp, torch.ones(1, 1), torch.tensor([[1.0, -2.0, 1.0]]), mask, share=1.0).tolist()
    [[0.0, 1.0, 0.0]]
    """
    upper = 1 + (epsilon if epsilon_high is None else epsilon_high)
    clipped = ((advantages > 0) & (ratio > upper)) | ((advantages < 0) & (ratio < 1 - epsilon))
    shared = covariance(logp, advantages, mask)
    candidates = (shared > low) & (shared < high) & ~clipped & mask
    drawn = largest(_noise(logp, mask).where(candidates, -torch.inf), share_of(mask, share))
    if log is not None:
        log("drawn", drawn.float())
    return (~drawn).to(logp.dtype)


def _noise(logp: Float[torch.Tensor, "B T"], mask: Bool[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B T"]:
    """A number in [0, 1) per token: the digits of a sine, far behind the point."""
    return (torch.sin(12.9898 * logp.detach().double() + 78.233 * mask.cumsum(1)) * 43758.5453) % 1.0


@hookimpl
def rlm_token_weights() -> dict[str, object]:
    return {
        "complete_rows": complete_rows,
        "top_entropy": top_entropy,
        "clip_cov": clip_cov,
        "truncated_importance": truncated_importance,
        "masked_importance": masked_importance,
    }
