"""Â of the nodes of a tree: what the answers below a node earned, against those of its parent and of the root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from jaxtyping import Bool, Float, Int
from pydantic import Field

from rlm_plugins.functional.statistics import Groups
from rlm_plugins.lazy import torch


class Nodes(NamedTuple):
    """What is known of the node each token stands in; all (B, T).

    Args:
        value: Mean reward of the rows that pass through it.
        above: The same of its parent; of the root, its own.
        leaves: How many rows pass through it.
    """

    value: torch.Tensor
    above: torch.Tensor
    leaves: torch.Tensor


def nodes(
    rewards: Float[torch.Tensor, "B"], completion_ids: Int[torch.Tensor, "B T"], group: Int[torch.Tensor, "B"]
) -> Nodes:
    """The tree that the rows of each group are, as their token ids tell it.

    Two rows are in one node as long as their tokens are the same from the start on; a new node begins where some of
    them go another way. So nobody needs to say where a row was forked, and rows that agree by chance share a node too:
    it is the same state.
    """
    state = torch.unique(group, return_inverse=True)[1]
    leaves, value = _of(state, rewards)
    above, columns = value, []
    for token in completion_ids.unbind(1):
        state = torch.unique(torch.stack([state, token.to(state.dtype)], 1), dim=0, return_inverse=True)[1]
        count, mean = _of(state, rewards)
        above = above.where(count == leaves, value)
        leaves, value = count, mean
        columns.append(Nodes(value, above, leaves))
    return Nodes(*(torch.stack(each, 1) for each in zip(*columns, strict=True)))


def _of(state: Int[torch.Tensor, "B"], rewards: Float[torch.Tensor, "B"]) -> tuple[torch.Tensor, torch.Tensor]:
    """Per row, how many rows are in its state, and their mean reward."""
    count = torch.bincount(state)
    total = rewards.new_zeros(len(count)).index_add(0, state, rewards)
    return count[state], (total / count)[state]


def padded(rows: Sequence[Sequence[int]], mask: Bool[torch.Tensor, "B T"]) -> Int[torch.Tensor, "B T"]:
    """Token ids as a table, −1 beyond the end of a row."""
    width = mask.shape[1]
    return torch.tensor([[*row, *[-1] * (width - len(row))] for row in rows], device=mask.device).view(mask.shape)


def tree(
    rewards: Float[torch.Tensor, "B"],
    completion_ids: Sequence[Sequence[int]],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    shared: Annotated[float, Field(ge=0, le=1)] = 0.5,
) -> Float[torch.Tensor, "B T"]:
    """How much better a token's node is than the root of its tree, and than its parent.

    Âᵢₜ = [(V(node) − V(root)) + (V(node) − V(parent))] / n^shared: V is the mean reward of the rows through a node, n
    their number, and the node that of token t. TreeRL, arXiv 2506.11902; AttnRL, 2509.26628, has the same.

    A token that n rows share is in the batch n times. With `shared` 1/2, the papers' √n, it counts √n times in the
    sum; with 1 once, with 0 n times. That takes rows whose shared tokens are all trained on, as the source `tree`
    writes them; where each is trained on in one row alone (`branches`), 0 is right. The rows of a group are the tree:
    see :func:`nodes`. Rows that share nothing: Âᵢ = 2 (rᵢ − mean_g). All rewards of a group equal: exactly 0.

    >>> ids, mask = [[7, 1], [7, 2], [8, 1]], torch.ones(3, 2).bool()
    >>> tree(torch.tensor([1.0, 0.0, 0.5]), ids, torch.zeros(3).long(), mask, shared=0.0).tolist()
    [[0.0, 1.0], [0.0, -1.0], [0.0, 0.0]]
    """
    found, groups = nodes(rewards, padded(completion_ids, mask), group), Groups(rewards, group)
    root = groups.flatten(groups.table.nanmean(1, keepdim=True)).unsqueeze(1)
    gain = (found.value - root) + (found.value - found.above)
    teaches = groups.flatten(groups.has_spread()).unsqueeze(1) & mask
    return (gain / found.leaves.to(gain.dtype) ** shared).where(teaches, 0.0)
