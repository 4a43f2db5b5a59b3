"""PRIME's reward: what a second model that learns right from wrong makes of each token. (Shaper of this package.)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from jaxtyping import Bool, Float, Int
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from rlm_plugins.annotations import RewardName, named
from rlm_plugins.batch import Log, LogprobsOf
from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.lazy import torch
from rlm_process.pairs import right_above_wrong

if TYPE_CHECKING:
    from rlm_plugins.models.auxiliary_lm import AuxiliaryLM

Ids = Sequence[Sequence[int]]
_WHERE = "shapers: implicit_reward.outcome"


class ImplicitReward:
    """How much likelier a second model finds a token than the base it stands on: a reward for every token.

    ρᵢₜ = β (log π_φ(yₜ) − log π_ref(yₜ)). π_ref is the policy's base without any adapter, π_φ the same base under an
    adapter of its own, and φ learns once per generation, after it has been asked, by one step of AdamW on

        CE = −1/B Σᵢ [ oᵢ log σ(Σₜ ρᵢₜ) + (1 − oᵢ) log(1 − σ(Σₜ ρᵢₜ)) ].

    oᵢ is the reward called `outcome`, 1 for right and 0 for wrong (anything between counts in part, what lies beyond is
    cut). Nobody labels a token: that the sum tells right from wrong is what makes the differences mean something.
    Implicit process reward, arXiv 2412.01981; online, PRIME, arXiv 2502.01456, whose code calls ρ the
    `rm_scores` and `learning_rate` 1e-6, for all weights; an adapter wants more. A new adapter says what the base says:
    ρ is 0, but for rounding, until it has learned.

    Rows that a filter dropped, that `outcome` did not score, or without a trained token teach it nothing. `lora` holds
    fields of ``peft.LoraConfig``, null takes the policy's. The ledger has its loss, its gradient (`norm`) and `pairs`:
    of two rows of a group, one right and one wrong, how often the right one had the higher sum, before it learned
    from them (½ is guessing).
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
        self.outcome, self.beta = outcome, beta
        self._made: dict[str, Any] = {
            "lora": lora,
            "learning_rate": learning_rate,
            "max_grad_norm": max_grad_norm,
            "batch_size": batch_size,
        }
        self._model: AuxiliaryLM | None = None

    def check(self, lora: Mapping[str, Any] | None) -> None:
        """Whether the base stays as it is.

        Raises:
            RecipeError: All weights are trained.
        """
        if lora is None:
            problem = "φ stands on the policy's frozen base, and all weights of this policy are trained"
            raise RecipeError(problem, hint="train an adapter: `model: {lora: {r: 16}}`")

    def setup(self, policy: Any, results: Mapping[str, Path]) -> None:
        """Makes φ, beside the policy's adapter."""
        from rlm_plugins.models.auxiliary_lm import AuxiliaryLM

        self._model = AuxiliaryLM(policy, "implicit", **self._made)

    @property
    def model(self) -> AuxiliaryLM:
        """φ.

        Raises:
            PartError: It has met no policy.
        """
        if self._model is None:
            raise PartError("has met no policy to stand on", where="implicit_reward", hint="let a stage train it")
        return self._model

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
        """One step for φ, on the rows that teach."""
        outcome = named(named_rewards, self.outcome, where=_WHERE)
        rows = (mask.any(1) & ~outcome.isnan()).nonzero().squeeze(1)
        if not len(rows):
            return
        mask, reference, labels = mask[rows], ref_logp[rows], outcome[rows].clamp(0, 1).to(ref_logp.dtype)
        sums = torch.zeros_like(labels)

        def loss(logp: Float[torch.Tensor, "b T"], some: list[int]) -> Float[torch.Tensor, ""]:
            rewards = self.beta * (logp - reference[some]).where(mask[some], 0.0).sum(1)
            sums[some] = rewards.detach()
            return _cross_entropy(rewards, labels[some], reduction="sum") / len(rows)

        numbers = rows.tolist()
        asked = [prompt_ids[i] for i in numbers], [completion_ids[i] for i in numbers]
        log("implicit_reward/norm", self.model.train_step(logprobs_of, *asked, mask.shape[1], loss, step))
        sums = self.model.sum_over_ranks(sums)
        log("implicit_reward/loss", _cross_entropy(sums, labels))
        if (pairs := right_above_wrong(sums, labels, group[rows])) is not None:
            log("implicit_reward/pairs", pairs)

    def state_dict(self) -> dict[str, Any]:
        return {} if self._model is None else self._model.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            self.model.load_state_dict(state)


def _cross_entropy(sums: torch.Tensor, labels: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return torch.nn.functional.binary_cross_entropy_with_logits(sums, labels, reduction=reduction)
