"""PRIME: outcome and implicit process reward, each with a baseline of its own. (Advantage and row of this package.)"""

from __future__ import annotations

from typing import Annotated

from jaxtyping import Bool, Float, Int
from pydantic import Field

from rlm_plugins.algorithm import Algorithm
from rlm_plugins.builtin.advantages import leave_one_out
from rlm_plugins.functional.statistics import Groups, discounted, whiten
from rlm_plugins.lazy import torch

Share = Annotated[float, Field(ge=0, le=1)]


def outcome_and_process(
    rewards: Float[torch.Tensor, "B"],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    dense_rewards: Float[torch.Tensor, "B T"] | None = None,
    *,
    gamma: Share = 1.0,
    stretched: bool = False,
    whitened: bool = False,
) -> Float[torch.Tensor, "B T"]:
    """What is paid at the end and what is paid on the way, each seen from the other rows of its group.

    Âᵢₜ = Σₛ γˢ⁻ᵗ (ρᵢₛ − 1/(n−1) Σ_{j≠i} ρ̄ⱼ) + oᵢ − 1/(n−1) Σ_{j≠i} oⱼ, the first sum over s ≥ t. ρ is what shapers
    added token by token, ρ̄ⱼ its mean over the tokens of row j, o the rest of the reward. PRIME, arXiv 2502.01456.

    The authors' code and verl's recipe do it otherwise. `stretched`: ρᵢₛ n/(n−1) − 1/(n−1) Σⱼ ρ̄ⱼ, own mean included;
    it is the same in the mean over a row, and n/(n−1) times as far from it. `whitened`: (Â − mean) / √(var + 1e-8) over
    the mask of the batch, after which only the ratio of ρ to o matters. A row without tokens has no ρ̄; a group of one
    has no others, and gets 0. Nothing added by shapers: `leave_one_out`.

    >>> dense, rewards = torch.tensor([[0.5, 0.0], [0.0, 0.25]]), torch.tensor([1.5, 0.25])  # o is 1 and 0
    >>> outcome_and_process(rewards, torch.tensor([0, 0]), torch.ones(2, 2, dtype=torch.bool), dense).tolist()
    [[1.25, 0.875], [-1.25, -1.0]]
    """
    dense = mask.new_zeros(mask.shape, dtype=rewards.dtype) if dense_rewards is None else dense_rewards.where(mask, 0.0)
    groups = Groups(dense.sum(1) / mask.sum(1), group)  # 0/0: a row without tokens is not there
    count = (~groups.table.isnan()).sum(1, keepdim=True)
    others = groups.table.nansum(1, keepdim=True) - (0.0 if stretched else groups.table)
    factor = groups.flatten(count / (count - 1)) if stretched else torch.ones_like(rewards)
    seen = dense * factor.unsqueeze(1) - groups.flatten(others / (count - 1)).unsqueeze(1)
    seen = seen.where(mask & groups.flatten(count > 1).unsqueeze(1), 0.0)
    outcome = leave_one_out(rewards - dense.sum(1), group)
    advantages = (discounted(seen, gamma, mask) + outcome.unsqueeze(1)).where(mask, 0.0)
    return whiten(advantages, mask) if whitened else advantages


prime = Algorithm(
    about="Outcome reward and, for every token, how much likelier a second model finds it that learns right from wrong "
    "on the way: an adapter on the same base, trained on nothing but the outcomes.",
    source="PRIME, arXiv 2502.01456; the implicit process reward: 2412.01981",
    pitfalls="φ learns once per generation, after it has been asked (the paper's single forward; its double forward is "
    "not here), so the first step is RLOO. Its learning rate is for an adapter, the paper's 1e-6 for all weights; too "
    "small, and the row stays RLOO: look at `shapers/implicit_reward/pairs`, ½ is guessing. Needs a frozen base: "
    "`model: {lora: …}`, and rewards between 0 and 1 to learn from (`outcome`). A policy can find what φ likes "
    "and is not right; φ keeps learning on what it finds. The authors' code and verl's recipe have another baseline "
    "and whiten: `advantage: {stretched: true, whitened: true}`; the authors' drops ρ of the last token besides, and "
    "`prime_norm: batch_norm` there divides ρ by the largest sum to come of a batch. Neither is here.",
    shapers=({"name": "implicit_reward", "beta": 0.05},),
    filters=({"name": "accuracy_band", "low": 0.2, "high": 0.8}, "no_truncated_groups"),
    advantage="outcome_and_process",
    importance="token",
    policy_loss={"name": "clip", "epsilon": 0.2},
    penalties=({"name": "entropy", "beta": 0.001},),
    aggregator="token_mean",
    names={
        "shapers": "r_φ(y_t), the implicit process reward with β",
        "advantage": "A_t, RLOO of outcome and process reward",
        "filters": "online prompt filtering",
    },
)
