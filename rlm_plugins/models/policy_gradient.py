"""Policy gradient loss of an auxiliary language model that is trained by reinforcement learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # packages of plugins import this, and are loaded to list their parts
    import torch
    from jaxtyping import Float


def policy_gradient_loss(
    advantages: Float[torch.Tensor, "B"],
    lengths: Sequence[int],
    aggregation: Literal["token_mean", "sequence_mean"] = "token_mean",
) -> Callable[[torch.Tensor, list[int]], torch.Tensor]:
    """Return −Σᵢ cᵢ Aᵢ Σₜ log π(yᵢₜ) as the `loss` of :meth:`~rlm_plugins.models.auxiliary_lm.AuxiliaryLM.train_step`.

    c is 1 / Σⱼ |yⱼ| for `token_mean`, and 1 / (N |yᵢ|) for `sequence_mean`. REINFORCE, or GRPO's first update on a
    generation batch, where the ratio is 1.

    Args:
        advantages: A of each sequence.
        lengths: Tokens of each sequence.
        aggregation: Names as in `algorithm.aggregator`.

    >>> import torch
    >>> loss = policy_gradient_loss(torch.tensor([1.0, -1.0]), [1, 2])
    >>> loss(torch.tensor([[-0.3, 0.0], [-0.5, -1.0]]), [0, 1])
    tensor(-0.4000)
    """
    weights, tokens = advantages, sum(lengths)
    if aggregation == "sequence_mean":
        weights, tokens = advantages / advantages.new_tensor(lengths).clamp(min=1) / len(lengths), 1

    def loss(logp: Float[torch.Tensor, "b T"], rows: list[int]) -> Float[torch.Tensor, ""]:
        return -(weights[rows].to(logp.device).unsqueeze(1) * logp).sum() / tokens

    return loss
