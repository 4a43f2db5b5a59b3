"""Â of steps that were paid for one by one: GRPO with process supervision (hook ``rlm_advantages``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field, NonNegativeFloat

from rlm_plugins.functional.statistics import discounted
from rlm_plugins.lazy import torch
from rlm_process.knobs import Steps
from rlm_process.segments import Segments
from rlm_process.steps import cutter, numbers, own_steps


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
    """What this step and those after it were paid, each seen from the steps of the group that are like it.

    Âᵢₜ = Σₖ γᵏ⁻ʲ (rₖ − mean_S) / (std_S + eps) over the steps k ≥ j of the row, j being that of token t: rₖ is what
    shapers added to the tokens of step k (`dense_rewards`), S are the steps of the group that step k is compared with.
    With all of them (`alike: all`) and γ = 1 it is GRPO's process supervision, arXiv 2402.03300 §4.1.3.

    `alike: number` compares the third step with third steps. `gamma: 0` holds a step to its own pay alone: right
    where no step depends on one before it; where they do, a step must answer for those that it makes go wrong. `scale:
    none` leaves out the division: scores that hardly differ are then hardly a reason to change anything, which matters
    where a model gives them.

    The outcome is not in it: pay it in the last step, as `step_labels` does. Std with n − 1. All steps of S paid the
    same, or one step alone: exactly 0. A row of many good steps gains with each of them: see the pitfalls of
    `step_labels`.

    >>> from rlm_process.knobs import Every
    >>> paid, mask = torch.tensor([[0.0, 1.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]), torch.ones(2, 4).bool()
    >>> ids, two = [[5, 6, 7, 8], [5, 6]], Every(every=2)
    >>> step_relative(paid, torch.tensor([0, 0]), mask, ids, None, steps=two, eps=0.0).mul(3**0.5).round().tolist()
    [[2.0, 2.0, 1.0, 1.0], [-2.0, -2.0, 0.0, 0.0]]
    """
    cut = cutter(steps, tokenizer, where="advantage: step_relative.steps")
    spans = own_steps(completion_ids, cut, None if turn_rewards is None else mask)
    pieces = Segments(numbers(spans, mask).where(mask, -1))
    like = group.unsqueeze(1).expand(pieces.live.shape)
    if alike == "number":
        places = torch.arange(like.shape[1], device=like.device)
        like = like * like.shape[1] + places
    relative = pieces.compared(pieces.sums(dense_rewards), like, scale=scale == "group", eps=eps)
    return pieces.spread(discounted(relative, gamma, pieces.live))
