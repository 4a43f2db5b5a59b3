"""PRIME: the implicit process reward of an auxiliary model trained on outcomes, and its advantage and algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from jaxtyping import Bool, Float, Int
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from rlm_algorithms.auxiliary_part import AuxiliaryPart

from rlm_plugins.builtin.advantages import leave_one_out
from rlm_plugins.equation.batch import Log, LogprobsOf
from rlm_plugins.equation.knobs import RewardName, Share, named
from rlm_plugins.equation.statistics import Groups, discounted, whiten
from rlm_plugins.lazy import torch

Ids = Sequence[Sequence[int]]
_WHERE = "shapers: implicit_reward.outcome"


class ImplicitReward(AuxiliaryPart):
    """Reward per token: how much more likely an auxiliary model makes it than its frozen base does.

    ρᵢₜ = β (log π_φ(yₜ) − log π_ref(yₜ)). π_ref is the policy's base without any adapter, π_φ the same base with an
    adapter of its own. φ takes one step of AdamW per generation batch, after its rewards are computed, on

        CE = −1/B Σᵢ [ oᵢ log σ(Σₜ ρᵢₜ) + (1 − oᵢ) log(1 − σ(Σₜ ρᵢₜ)) ].

    oᵢ is the reward named `outcome`, 1 for correct and 0 for wrong (values between count in part, values beyond are
    clipped). No token labels are needed: the outcome loss on the sum makes the per-token differences meaningful.
    Implicit process reward, arXiv 2412.01981; online, PRIME, arXiv 2502.01456, whose code calls ρ the
    `rm_scores` and uses `learning_rate` 1e-6 for all weights; an adapter needs more. A new adapter equals the base, so
    ρ is 0, up to rounding, until the first update.

    Completions that a filter dropped, that `outcome` did not score, or without a trained token are not trained on.
    `lora` holds fields of ``peft.LoraConfig``; null copies the policy's. The metrics log has its loss, its gradient
    norm (`norm`) and `pairs`. `pairs` is the share of pairs (correct, wrong) of a group whose correct completion has
    the higher sum before the update (½ is guessing).
    """

    def __init__(
        self,
        *,
        outcome: RewardName = "accuracy",
        beta: PositiveFloat = 0.05,
        learning_rate: NonNegativeFloat = 1e-4,
        max_grad_norm: NonNegativeFloat = 1.0,
        lora: Annotated[dict[str, Any], Field(min_length=1)] | None = None,
        batch_size: PositiveInt = 16,
    ) -> None:
        super().__init__(
            "implicit_reward",
            lora=lora,
            learning_rate=learning_rate,
            max_grad_norm=max_grad_norm,
            batch_size=batch_size,
        )
        self.outcome, self.beta = outcome, beta

    def __call__(
        self,
        mask: Bool[torch.Tensor, "B T"],
        ref_logp: Float[torch.Tensor, "B T"],
        prompt_ids: Ids,
        completion_ids: Ids,
        logprobs_of: LogprobsOf,
    ) -> Float[torch.Tensor, "B T"]:
        logp = self.model.logp(logprobs_of, prompt_ids, completion_ids, mask.shape[1])
        return (self.beta * (logp - ref_logp)).where(mask, 0.0)

    def update(
        self,
        mask: Bool[torch.Tensor, "B T"],
        named_rewards: Mapping[str, torch.Tensor],
        group: Int[torch.Tensor, "B"],
        ref_logp: Float[torch.Tensor, "B T"],
        prompt_ids: Ids,
        completion_ids: Ids,
        logprobs_of: LogprobsOf,
        step: int,
        log: Log,
    ) -> None:
        """Take one optimizer step on φ, on the informative completions."""
        outcome = named(named_rewards, self.outcome, where=_WHERE)
        rows = (mask.any(1) & ~outcome.isnan()).nonzero().squeeze(1)
        if not len(rows):
            return
        mask, reference, labels = mask[rows], ref_logp[rows], outcome[rows].clamp(0, 1).to(ref_logp.dtype)
        sums = torch.zeros_like(labels)

        def loss(logp: Float[torch.Tensor, "b T"], chosen: list[int]) -> Float[torch.Tensor, ""]:
            rewards = self.beta * (logp - reference[chosen]).where(mask[chosen], 0.0).sum(1)
            sums[chosen] = rewards.detach()
            return _cross_entropy(rewards, labels[chosen], reduction="sum") / len(rows)

        indices = rows.tolist()
        chosen_ids = [prompt_ids[i] for i in indices], [completion_ids[i] for i in indices]
        log("implicit_reward/norm", self.model.train_step(logprobs_of, *chosen_ids, mask.shape[1], loss, step))
        sums = self.model.sum_over_ranks(sums)
        log("implicit_reward/loss", _cross_entropy(sums, labels))
        accuracy = ranking_accuracy(sums, labels, group[rows])
        if accuracy is not None:
            log("implicit_reward/pairs", accuracy)


def _cross_entropy(sums: torch.Tensor, labels: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(sums, labels, reduction=reduction)


def ranking_accuracy(
    x: Float[torch.Tensor, "B"], outcome: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"]
) -> float | None:
    """Return the share of pairs (correct, wrong) of one group in which the correct one is higher; a tie is half.

    It is the area under the ROC curve, within groups. Numbers within rounding error (1e-5) are tied. None:
    there is no such pair.

    >>> x, outcome = torch.tensor([0.3, 0.1, 0.1, 9.0]), torch.tensor([1.0, 0.0, 1.0, 0.0])
    >>> ranking_accuracy(x, outcome, torch.tensor([0, 0, 0, 1]))
    0.75
    """
    pairs = (group.unsqueeze(1) == group) & (outcome > 0.5).unsqueeze(1) & (outcome <= 0.5)
    if not pairs.any():
        return None
    difference = x.unsqueeze(1) - x
    wins = difference.sign().where(difference.abs() > 1e-5, 0.0) / 2 + 0.5
    return wins[pairs].mean().item()


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
    """Combine outcome and process rewards, each relative to the other completions of its group.

    Âₜ = {whitened true → (aₜ − mean aₜ) / √(var aₜ + 1e-8); false → aₜ}, with aₜ = Σₗ (γ)ˡ bₜ₊ₗ + o − mean_others o, bₜ
    = {stretched true → ρₜ G / (G − 1) − Σⱼ ρ̄ / (G − 1); false → ρₜ − mean_others ρ̄}, ρ̄ = meanₜ ρ and o = r − Σₜ ρ. ρ
    are the dense rewards of shapers, o the rest of the reward. PRIME, arXiv 2502.01456.

    The authors' code and verl's recipe differ. With `stretched` the mean over a completion is the same, and deviations
    from it are G/(G−1) times as large. `whitened`: only the ratio of ρ to o matters. A completion
    without tokens has no ρ̄; in a group of one the advantage is 0. Without dense rewards it is `leave_one_out`.

    >>> dense, rewards = torch.tensor([[0.5, 0.0], [0.0, 0.25]]), torch.tensor([1.5, 0.25])  # o is 1 and 0
    >>> outcome_and_process(rewards, torch.tensor([0, 0]), torch.ones(2, 2, dtype=torch.bool), dense).tolist()
    [[1.25, 0.875], [-1.25, -1.0]]
    """
    dense = mask.new_zeros(mask.shape, dtype=rewards.dtype) if dense_rewards is None else dense_rewards.where(mask, 0.0)
    groups = Groups(dense.sum(1) / mask.sum(1), group)  # 0/0 = NaN excludes a completion without tokens
    count = (~groups.table.isnan()).sum(1, keepdim=True)
    others = groups.table.nansum(1, keepdim=True) - (0.0 if stretched else groups.table)
    factor = groups.flatten(count / (count - 1)) if stretched else torch.ones_like(rewards)
    relative = dense * factor.unsqueeze(1) - groups.flatten(others / (count - 1)).unsqueeze(1)
    relative = relative.where(mask & groups.flatten(count > 1).unsqueeze(1), 0.0)
    outcome = leave_one_out(rewards - dense.sum(1), group)
    advantages = (discounted(relative, gamma, mask) + outcome.unsqueeze(1)).where(mask, 0.0)
    return whiten(advantages, mask) if whitened else advantages
