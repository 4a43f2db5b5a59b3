"""Â of the turns of a conversation: what followed a turn, against what followed the same turn of other rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field, NonNegativeFloat

from rlm_plugins.builtin.advantages import group_relative
from rlm_plugins.functional.statistics import discounted
from rlm_plugins.lazy import torch
from rlm_process.segments import Segments


def turns(mask: Bool[torch.Tensor, "B T"]) -> Int[torch.Tensor, "B T"]:
    """To which turn of its row each token belongs, from 0; −1 where it is not the policy's.

    A turn is a run of tokens that are trained on: what the world says between two of them is not.

    >>> turns(torch.tensor([[True, True, False, True], [False, True, True, False]])).tolist()
    [[0, 0, -1, 1], [-1, 0, 0, -1]]
    """
    starts = mask & ~torch.nn.functional.pad(mask[:, :-1], (1, 0))
    return (starts.cumsum(1) - 1).where(mask, -1)


def turn_relative(
    rewards: Float[torch.Tensor, "B"],
    token_rewards: Float[torch.Tensor, "B T"],
    completion_ids: Sequence[Sequence[int]],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    alike: Literal["number", "observation"] = "number",
    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0,
    omega: NonNegativeFloat = 1.0,
    episode: NonNegativeFloat = 0.0,
    scale: Literal["group", "none"] = "group",
    eps: NonNegativeFloat = 1e-4,
) -> Float[torch.Tensor, "B T"]:
    """What a turn and those after it earned, seen from the mean of the turns that are like it.

    Âᵢₜ = ω · (Rᵢᵤ − mean_S) / s_S + episode · (rᵢ − mean_g) / s_g for every token t of turn u, with
    Rᵢᵤ = Σᵥ γᵛ⁻ᵘ rᵢᵥ over v ≥ u: rᵢᵥ is what the tokens of turn v were paid (`token_rewards`: dense rewards where
    shapers add them, the row's reward in its last turn), S the turns of the group that are like it.

    `alike` says which are: those of the same number (every world has them), or those that answer the same observation,
    token by token, whenever it was made: the anchor states of GiGPO, arXiv 2505.10978 eq. 6–8, whose ω is 1, γ 0.95
    and A^E the second term (`episode` 1). An observation stands for a state only where the past does not matter. s is
    the std with n − 1 plus `eps`, or 1 for the scale "none". A turn like no other: 0 in its term; equal returns
    likewise, and equal rewards of a group exactly 0 as long as γ = 1.

    >>> mask = torch.tensor([[True, False, True], [True, False, False]])
    >>> paid = torch.tensor([[0.0, 0.0, 3.0], [1.0, 0.0, 0.0]])
    >>> turn_relative(paid.sum(1), paid, mask.long().tolist(), torch.tensor([0, 0]), mask, scale="none").tolist()
    [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]
    """
    turn = turns(mask)
    pieces, scaled = Segments(turn), scale == "group"
    to_come = discounted(pieces.sums(token_rewards), gamma, pieces.live)
    like = _like(group, completion_ids if alike == "observation" else None, turn, pieces.live)
    advantages = omega * pieces.compared(to_come, like, scale=scaled, eps=eps)
    if episode:
        advantages = advantages + episode * group_relative(rewards, group, scale=scale, eps=eps).unsqueeze(1)
    return pieces.spread(advantages)


def _like(
    group: Int[torch.Tensor, "B"],
    ids: Sequence[Sequence[int]] | None,
    turn: Int[torch.Tensor, "B T"],
    live: Bool[torch.Tensor, "B U"],
) -> Int[torch.Tensor, "B U"]:
    """A number for each turn that those of its group share with it that are like it: with `ids` by what they answer."""
    found = torch.zeros(live.shape, dtype=torch.long, device=live.device)
    known: dict[tuple[int, object], int] = {}
    rows, owner = group.tolist(), turn.tolist()
    for row, number in live.nonzero().tolist():
        key = number if ids is None else _observed(ids[row], owner[row], number)
        found[row, number] = known.setdefault((rows[row], key), len(known))
    return found


def _observed(ids: Sequence[int], owner: list[int], number: int) -> tuple[int, ...]:
    """What was said to the policy right before a turn; the prompt says nothing."""
    end = start = owner.index(number)
    while start and owner[start - 1] < 0:
        start -= 1
    return tuple(ids[start:end])
