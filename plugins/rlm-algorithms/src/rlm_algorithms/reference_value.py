"""A*-PO: the value of a prompt from samples of the reference policy, taken once, and a regression on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from pydantic import PositiveFloat, PositiveInt

from rlm_algorithms.imitation_losses import sequence_mean
from rlm_algorithms.tracked_values import prompt_keys
from rlm_plugins.errors import TRAIN_ADAPTER, RecipeError
from rlm_plugins.lazy import torch


class ReferenceValue:
    """Reward minus the optimal value of the prompt, estimated once from samples of the reference policy (A*-PO).

    Âᵢ = rᵢ − V*(x), with V*(x) = β log((1/n) Σⱼ e^(rⱼ/β)) over n = `samples` completions of the policy without its
    adapter. A*-PO, arXiv 2505.20686, eq. 4; TRL 1.16 has β 0.5 and n 8. A prompt is sampled when it first occurs, not
    before the first step; V* is saved in checkpoints. One completion per prompt is enough. A group with equal rewards
    has the same Â, which is 0 only where r = V*.

    >>> value = ReferenceValue(samples=2)
    >>> rewards, index = torch.tensor([1.0, 0.0]), torch.tensor([4, 4])
    >>> value(rewards, index, ["?", "?"], [{}, {}], lambda prompts: [[5]] * 2, lambda *rows: torch.tensor([1.0, 0.0]))
    tensor([ 0.2831, -0.7169])
    """

    def __init__(self, *, beta: PositiveFloat = 0.5, samples: PositiveInt = 8) -> None:
        self.beta, self.samples = beta, samples
        self.values: dict[int, float] = {}
        self.reference: Callable[[], Any] = nullcontext

    def __call__(
        self,
        rewards: Float[torch.Tensor, "B"],
        prompt_index: Int[torch.Tensor, "B"],
        prompts: Sequence[Any],
        inputs: Sequence[Any],
        generate: Callable[..., Any],
        rewards_of: Callable[..., Any],
    ) -> Float[torch.Tensor, "B"]:
        keys = prompt_keys(prompt_index)
        new = sorted({*keys} - {*self.values})
        if new:
            rows = [keys.index(key) for key in new for _ in range(self.samples)]
            asked = [prompts[row] for row in rows]
            with self.reference():
                completion_ids = generate(asked)
            scores = rewards_of(asked, completion_ids, [inputs[row] for row in rows]).double().nan_to_num(nan=0.0)
            mean = (scores.view(-1, self.samples) / self.beta).logsumexp(1) - math.log(self.samples)
            self.values.update(zip(new, (self.beta * mean).tolist(), strict=True))
        baseline = [self.values[key] for key in keys]
        return rewards - torch.tensor(baseline, dtype=rewards.dtype, device=rewards.device)

    def observer(self) -> Any:
        """Return what gives access to the policy without its adapter."""
        from rlm_plugins.trainer.observer import StepObserver

        part = self

        class Reference(StepObserver):
            name = "reference_value"

            def attach(self, trainer: Any) -> None:
                policy = trainer.accelerator.unwrap_model(trainer.model)
                if not hasattr(policy, "disable_adapter"):
                    problem = "`reference_value` requires the policy without its adapter, but all weights are trained"
                    raise RecipeError(problem, where="model", hint=TRAIN_ADAPTER)
                part.reference = policy.disable_adapter

        return Reference()

    def state_dict(self) -> dict[str, Any]:
        return {"values": dict(self.values)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.values = dict(state["values"])


def value_regression(
    logp: Float[torch.Tensor, "B T"],
    ref_logp: Float[torch.Tensor, "B T"],
    rewards: Float[torch.Tensor, "B"],
    advantages: Float[torch.Tensor, "B #T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    beta: PositiveFloat = 1e-3,
    unsolved: Literal["dropped", "trained"] = "dropped",
) -> Float[torch.Tensor, "B 1"]:
    """Squared difference of the log-ratio to the reference policy and the advantage (A*-PO); no ratio, no clip.

    ℓ = {unsolved dropped → 0 where |r − Â| ≤ 1e-6, else d²; trained → d²}, with d = β Σₜ (log π − log π_ref) − Â.
    A*-PO, arXiv 2505.20686 eq. 3, with the Â of `reference_value` and the aggregator `sequence_mean`. At the optimum
    log π/π_ref = Â/β.

    `unsolved` "dropped": 0 where r = Â, thus V* = 0: no sample of the reference was right, so the estimate is not
    informative (TRL's `filter_all_incorrect`, which removes these prompts from the data; here they are in the mean).
    Â = 0: a pull towards the reference.

    >>> logp, zero, mask = torch.tensor([[-1.0, -1.0]]), torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool)
    >>> value_regression(logp, zero, torch.ones(1), torch.tensor([[0.5]]), mask, beta=0.25).item()
    1.0
    """
    target = sequence_mean(advantages, mask)
    loss = (beta * (logp - ref_logp).where(mask, 0.0).sum(1, keepdim=True) - target) ** 2
    is_solved = (rewards.unsqueeze(1) - target).abs() > 1e-6
    return loss.where(is_solved, 0.0) if unsolved == "dropped" else loss
