"""r′: rewards combined otherwise than by a weighted sum (hook ``rlm_shapers``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from jaxtyping import Float
from pydantic import Field, PositiveFloat

from rlm_plugins.equation.knobs import RewardName, named
from rlm_plugins.lazy import torch

Names = Annotated[Sequence[RewardName], Field(min_length=1)]


def sigmoid_shaping(
    named_rewards: dict[str, torch.Tensor],
    *,
    score: RewardName = "reward_model",
    verifier: RewardName = "accuracy",
    alpha: PositiveFloat = 0.5,
) -> Float[torch.Tensor, "B"]:
    """Score of a reward model, shifted by a verifier: every right answer has a higher reward than any wrong one.

    r′ = σ(α r_m) + (r_v − 1), in (0, 1) for right answers, r_v = 1, and in (−1, 0) for wrong ones, r_v = 0.
    Qwen2.5-Math, arXiv 2409.12122.

    `score` and `verifier` name the two rewards; the weighted sum of the recipe is replaced. A missing reward counts 0.

    >>> scores = {"reward_model": torch.tensor([0.0, 0.0]), "accuracy": torch.tensor([1.0, 0.0])}
    >>> sigmoid_shaping(scores).tolist()
    [0.5, -0.5]
    """
    scores, verified = (
        named(named_rewards, name, where=f"shapers: sigmoid_shaping.{knob}").nan_to_num(nan=0.0)
        for knob, name in (("score", score), ("verifier", verifier))
    )
    return torch.sigmoid(alpha * scores) + (verified - 1)


def product(named_rewards: dict[str, torch.Tensor], *, of: Names) -> Float[torch.Tensor, "B"]:
    """Product of several rewards, in place of their weighted sum.

    r′ = Πₖ rₖ over the rewards named in `of`, unweighted; the weighted sum of the recipe is replaced. With `accuracy`
    and `l1_max` it is L1-Max (arXiv 2503.04697). A missing reward counts 0.

    >>> product({"accuracy": torch.tensor([1.0, 0.0]), "l1_max": torch.tensor([0.5, 0.9])}, of=["accuracy", "l1_max"])
    tensor([0.5000, 0.0000])
    """
    factors = [named(named_rewards, name, where="shapers: product.of") for name in of]
    return torch.stack(factors).nan_to_num(nan=0.0).prod(0)
