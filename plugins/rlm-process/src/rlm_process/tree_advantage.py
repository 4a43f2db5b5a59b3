"""Â of the nodes of a tree: the mean reward below a node relative to its parent and to the root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from jaxtyping import Bool, Float, Int
from pydantic import Field

from rlm_plugins.equation.statistics import Groups
from rlm_plugins.lazy import torch


class TreeNodes(NamedTuple):
    """The node of each token; all fields (B, T).

    Args:
        value: Mean reward of the completions through it.
        parent_value: The value of its parent; of the root, its own.
        leaves: Number of completions through it.
    """

    value: torch.Tensor
    parent_value: torch.Tensor
    leaves: torch.Tensor


def tree_nodes(
    rewards: Float[torch.Tensor, "B"], completion_ids: Int[torch.Tensor, "B T"], group: Int[torch.Tensor, "B"]
) -> TreeNodes:
    """Reconstruct the tree of each group from its token ids.

    Two completions share a node as long as their tokens from the start are equal; a new node begins where some
    of them diverge. So fork positions need not be recorded. Completions that are equal by chance also share a node,
    because it is the same state.
    """
    state = torch.unique(group, return_inverse=True)[1]
    leaves, value = _leaves_and_mean(state, rewards)
    parent_value, columns = value, []
    for token in completion_ids.unbind(1):
        state = torch.unique(torch.stack([state, token.to(state.dtype)], 1), dim=0, return_inverse=True)[1]
        count, mean = _leaves_and_mean(state, rewards)
        parent_value = parent_value.where(count == leaves, value)
        leaves, value = count, mean
        columns.append(TreeNodes(value, parent_value, leaves))
    return TreeNodes(*(torch.stack(field, 1) for field in zip(*columns, strict=True)))


def _leaves_and_mean(
    state: Int[torch.Tensor, "B"], rewards: Float[torch.Tensor, "B"]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return per completion the number of completions in its state, and their mean reward."""
    count = torch.bincount(state)
    total = rewards.new_zeros(len(count)).index_add(0, state, rewards)
    return count[state], (total / count)[state]


def pad_ids(completion_ids: Sequence[Sequence[int]], mask: Bool[torch.Tensor, "B T"]) -> Int[torch.Tensor, "B T"]:
    """Return token ids as a tensor, −1 beyond the end of a completion."""
    width = mask.shape[1]
    padded = [[*ids, *[-1] * (width - len(ids))] for ids in completion_ids]
    return torch.tensor(padded, device=mask.device).view(mask.shape)


def tree(
    rewards: Float[torch.Tensor, "B"],
    completion_ids: Sequence[Sequence[int]],
    group: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    shared: Annotated[float, Field(ge=0, le=1)] = 0.5,
) -> Float[torch.Tensor, "B T"]:
    """Compute how much better a token's node is than the root of its tree, and than its parent.

    Âᵢₜ = [(V(node) − V(root)) + (V(node) − V(parent))] / n^shared: V is the mean reward of the completions through a
    node, n their number, and the node that of token t. TreeRL, arXiv 2506.11902; AttnRL, 2509.26628, has the same.

    A token that n completions share is in the batch n times. With `shared` 1/2, the √n of both papers, it counts √n
    times in the sum; with 1 once, with 0 n times. This assumes that shared tokens are trained on in every completion,
    as the rollout source `tree` does. If each is trained on in one completion alone (`branches`), 0 is right. The
    completions of a group form the tree: see :func:`tree_nodes`. Without shared tokens: Âᵢ = 2 (rᵢ − mean_g). All
    rewards of a group equal: exactly 0.

    >>> ids, mask = [[7, 1], [7, 2], [8, 1]], torch.ones(3, 2).bool()
    >>> tree(torch.tensor([1.0, 0.0, 0.5]), ids, torch.zeros(3).long(), mask, shared=0.0).tolist()
    [[0.0, 1.0], [0.0, -1.0], [0.0, 0.0]]
    """
    node, groups = tree_nodes(rewards, pad_ids(completion_ids, mask), group), Groups(rewards, group)
    root = groups.flatten(groups.table.nanmean(1, keepdim=True)).unsqueeze(1)
    gain = (node.value - root) + (node.value - node.parent_value)
    informative = groups.flatten(groups.has_spread()).unsqueeze(1) & mask
    return (gain / node.leaves.to(gain.dtype) ** shared).where(informative, 0.0)
