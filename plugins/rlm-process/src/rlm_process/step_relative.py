"""Â of individually rewarded steps: GRPO with process supervision (hook ``rlm_advantages``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field, NonNegativeFloat

from rlm_plugins.equation.statistics import discounted
from rlm_plugins.lazy import torch
from rlm_process.knobs import Steps
from rlm_process.step_boundaries import step_cutter, step_numbers, step_spans
from rlm_process.token_segments import TokenSegments


def step_relative(
    dense_rewards: Float[torch.Tensor, "B T"],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    completion_ids: Sequence[Sequence[int]],
    tokenizer: Any,
    turn_rewards: Float[torch.Tensor, "B T"] | None = None,
    *,
    steps: Steps = "lines",
    alike: Literal["all", "number"] = "all",
    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0,
    scale: Literal["group", "none"] = "group",
    eps: NonNegativeFloat = 1e-4,
) -> Float[torch.Tensor, "B T"]:
    """Sum the rewards of this step and later ones, each standardized over comparable steps of the group.

    Âᵢₜ = Σₖ γᵏ⁻ʲ (rₖ − mean_S) / (std_S + eps) over the steps k ≥ j of the completion, j being the step of token t. rₖ
    is the sum of dense rewards on step k (`dense_rewards`), S the steps of the group that step k is compared with.
    With all of them (`alike: all`) and γ = 1 it is GRPO's process supervision, arXiv 2402.03300 §4.1.3.

    `alike: number` compares the third step with third steps. `gamma: 0` uses a step's own reward alone: correct
    if no step depends on an earlier one; otherwise a step must also account for the later steps it makes fail. `scale:
    none` omits the division, so that tiny differences of scores stay tiny, which matters for scores from a model.

    The outcome is not included: reward it in the last step, as `step_labels` does. Std with n − 1. If all steps of S
    have the same reward, or there is one step alone: exactly 0. A completion gains with each further good step: see the
    pitfalls of `step_labels`.

    >>> from rlm_process.knobs import Every
    >>> paid, mask = torch.tensor([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]), torch.ones(2, 4).bool()
    >>> ids, two = [[5, 6, 7, 8], [5, 6]], Every(every=2)
    >>> step_relative(paid, torch.tensor([0, 0]), mask, ids, None, steps=two, eps=0.0).mul(3**0.5).round().tolist()
    [[2.0, 2.0, 1.0, 1.0], [-2.0, -2.0, 0.0, 0.0]]
    """
    cut_steps = step_cutter(steps, tokenizer, where="advantage: step_relative.steps")
    spans = step_spans(completion_ids, cut_steps, None if turn_rewards is None else mask)
    segments = TokenSegments(step_numbers(spans, mask).where(mask, -1))
    peers = group.unsqueeze(1).expand(segments.live.shape)
    if alike == "number":
        step_numbers_row = torch.arange(peers.shape[1], device=peers.device)
        peers = peers * peers.shape[1] + step_numbers_row
    relative = segments.relative_to_peers(segments.sums(dense_rewards), peers, scale=scale == "group", eps=eps)
    return segments.to_tokens(discounted(relative, gamma, segments.live))
