"""ℓ: what is done with w and Â (hook ``rlm_policy_losses``). Per token, to be minimised."""

from __future__ import annotations

from jaxtyping import Float
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_plugins import hookimpl
from rlm_plugins.batch import Log
from rlm_plugins.lazy import torch


def reinforce(logp: Float[torch.Tensor, "B T"], advantages: Float[torch.Tensor, "B #T"]) -> Float[torch.Tensor, "B T"]:
    """ℓ = −Â · log π. The policy gradient itself (Williams 1992); no ratio, no clip.

    >>> reinforce(torch.tensor([[-2.0, -0.5]]), torch.tensor([[2.0]])).tolist()
    [[4.0, 1.0]]
    """
    return -advantages * logp


def clip(
    ratio: Float[torch.Tensor, "B #T"],
    advantages: Float[torch.Tensor, "B #T"],
    log: Log | None = None,
    *,
    epsilon: NonNegativeFloat = 0.2,
    epsilon_high: NonNegativeFloat | None = None,
    delta: PositiveFloat | None = None,
) -> Float[torch.Tensor, "B #T"]:
    """ℓ = −min(w Â, clip(w, 1−ε, 1+ε_high) Â): a token stops pulling once it has moved enough.

    PPO, arXiv 1707.06347 eq. 7. `epsilon_high` (default: `epsilon`) is DAPO's clip-higher, 2503.14476 eq. 10.
    `delta` bounds the loss of tokens that became likely although Â < 0: w is capped there as well. With
    δ > 1 + ε_high this is dual clip (1912.09729; verl has it always on, with 3) and two-sided clip (2505.07291; TRL).
    At w = 1 the gradient is REINFORCE's. Â = 0: no gradient.

    >>> clip(torch.tensor([[1.5]]), torch.tensor([[1.0]])).item()
    -1.2000000476837158
    """
    high = epsilon if epsilon_high is None else epsilon_high
    if log is not None:
        log("clipped_low", ((ratio < 1 - epsilon) & (advantages < 0)).float())
        log("clipped_high", ((ratio > 1 + high) & (advantages > 0)).float())
    clipped = ratio.clamp(1 - epsilon, 1 + high)
    free = ratio if delta is None else ratio.clamp(max=delta)
    return -torch.min(free * advantages, clipped * advantages)


def cispo(
    ratio: Float[torch.Tensor, "B #T"],
    advantages: Float[torch.Tensor, "B #T"],
    logp: Float[torch.Tensor, "B T"],
    log: Log | None = None,
    *,
    epsilon_high: NonNegativeFloat = 4.0,
    epsilon_low: NonNegativeFloat | None = None,
) -> Float[torch.Tensor, "B T"]:
    """ℓ = −sg(clip(w, 1−ε_low, 1+ε_high)) · Â · log π: the weight is clipped, no token loses its gradient.

    MiniMax-M1, arXiv 2506.13585 eq. 4–5; the paper tunes ε_high only, so no lower bound by default. Libraries
    disagree: verl clips to [1−0.2, 1+0.2]; TRL's `epsilon_high` *is* the cap, 1 + ours.

    >>> cispo(torch.tensor([[9.0]]), torch.tensor([[1.0]]), torch.tensor([[-0.5]])).item()
    2.5
    """
    if log is not None:
        log("capped", ((ratio > 1 + epsilon_high) & (advantages > 0)).float())
    weight = ratio.clamp(min=None if epsilon_low is None else 1 - epsilon_low, max=1 + epsilon_high)
    return -weight.detach() * advantages * logp


@hookimpl
def rlm_policy_losses() -> dict[str, object]:
    return {"reinforce": reinforce, "clip": clip, "cispo": cispo}
