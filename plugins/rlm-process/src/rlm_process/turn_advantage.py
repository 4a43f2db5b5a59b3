"""Â of the turns of an episode: the return from a turn relative to comparable turns of the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from jaxtyping import Bool, Float, Int
from pydantic import Field, NonNegativeFloat

from rlm_plugins.builtin.advantages import group_relative
from rlm_plugins.equation.statistics import discounted
from rlm_plugins.lazy import torch
from rlm_process.token_segments import TokenSegments


def turns(mask: Bool[torch.Tensor, "B T"]) -> Int[torch.Tensor, "B T"]:
    """Return the turn of each token, from 0; −1 for tokens that are not the policy's.

    A turn is a run of tokens that are trained on; the observations between them are not.

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
    """Standardize the return from a turn over comparable turns of the group.

    Âᵢₜ = ω · (Rᵢᵤ − mean_S) / s_S + episode · (rᵢ − mean_g) / s_g for every token t of turn u, with
    Rᵢᵤ = Σᵥ γᵛ⁻ᵘ rᵢᵥ over v ≥ u: rᵢᵥ is the sum of the token rewards of turn v (`token_rewards`: dense rewards, and the
    completion's reward in its last turn), S the comparable turns of the group.

    `alike` defines them: turns of the same number (in every environment), or turns after the same observation,
    token by token, whenever it occurred: the anchor states of GiGPO, arXiv 2505.10978 eq. 6–8, whose ω is 1, γ 0.95
    and A^E the second term (`episode` 1). An observation identifies a state only where the past does not matter. s is
    the std with n − 1 plus `eps`, or 1 for the scale "none". A turn without comparable ones: 0 in its term; equal
    returns likewise, and equal rewards of a group exactly 0 as long as γ = 1.

    >>> mask = torch.tensor([[True, False, True], [True, False, False]])
    >>> paid = torch.tensor([[0.0, 0.0, 3.0], [1.0, 0.0, 0.0]])
    >>> turn_relative(paid.sum(1), paid, mask.long().tolist(), torch.tensor([0, 0]), mask, scale="none").tolist()
    [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]
    """
    turn = turns(mask)
    segments, scale_by_std = TokenSegments(turn), scale == "group"
    returns = discounted(segments.sums(token_rewards), gamma, segments.live)
    peers = _peer_groups(group, completion_ids if alike == "observation" else None, turn, segments.live)
    advantages = omega * segments.relative_to_peers(returns, peers, scale=scale_by_std, eps=eps)
    if episode:
        advantages = advantages + episode * group_relative(rewards, group, scale=scale, eps=eps).unsqueeze(1)
    return segments.to_tokens(advantages)


def _peer_groups(
    group: Int[torch.Tensor, "B"],
    ids: Sequence[Sequence[int]] | None,
    turn: Int[torch.Tensor, "B T"],
    live: Bool[torch.Tensor, "B U"],
) -> Int[torch.Tensor, "B U"]:
    """Return a number for each turn, shared by comparable turns of its group; with `ids` by their observations."""
    peer_group = torch.zeros(live.shape, dtype=torch.long, device=live.device)
    numbers: dict[tuple[int, object], int] = {}
    groups, owner = group.tolist(), turn.tolist()
    for index, number in live.nonzero().tolist():
        key = number if ids is None else _observation(ids[index], owner[index], number)
        peer_group[index, number] = numbers.setdefault((groups[index], key), len(numbers))
    return peer_group


def _observation(ids: Sequence[int], owner: list[int], number: int) -> tuple[int, ...]:
    """Return the tokens between a turn and the previous one; empty after the prompt."""
    end = start = owner.index(number)
    while start and owner[start - 1] < 0:
        start -= 1
    return tuple(ids[start:end])
