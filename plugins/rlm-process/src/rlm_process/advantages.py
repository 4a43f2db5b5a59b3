"""Â of parts of a completion: the nodes of a tree, the turns of an episode, individually rewarded steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

from jaxtyping import Bool, Float, Int
from pydantic import Field, NonNegativeFloat

from rlm_plugins.builtin.advantages import group_relative
from rlm_plugins.equation.statistics import Groups, discounted, nanstd
from rlm_plugins.lazy import torch
from rlm_process.step_boundaries import Steps, step_cutter, step_numbers, step_spans


class TokenSegments:
    """A table with one column per segment of a completion.

    Args:
        number: Segment of each token, from 0; −1: none.

    Attributes:
        live: (B, K) True where the completion has a segment of that number.

    >>> cut = TokenSegments(torch.tensor([[0, 0, -1, 1], [-1, 0, 0, -1]]))
    >>> cut.sums(torch.tensor([[1.0, 2.0, 9.0, 4.0], [9.0, 1.0, 1.0, 9.0]])).tolist()
    [[3.0, 4.0], [2.0, 0.0]]
    >>> cut.to_tokens(torch.tensor([[3.0, 4.0], [2.0, 0.0]])).tolist()
    [[3.0, 3.0, 0.0, 4.0], [0.0, 2.0, 2.0, 0.0]]
    """

    def __init__(self, number: Int[torch.Tensor, "B T"]) -> None:
        segments = torch.arange(max(1, int(number.max()) + 1), device=number.device)
        self._own: Bool[torch.Tensor, "B T K"] = number.unsqueeze(2) == segments
        self.live = self._own.any(1)

    def sums(self, x: Float[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B K"]:
        return (x.unsqueeze(2) * self._own).sum(1)

    def to_tokens(self, table: Float[torch.Tensor, "B K"]) -> Float[torch.Tensor, "B T"]:
        """Return the value of its segment for every token; 0 outside of segments."""
        return (table.unsqueeze(1) * self._own).sum(2)

    def relative_to_peers(
        self, table: Float[torch.Tensor, "B K"], peers: Int[torch.Tensor, "B K"], *, scale: bool, eps: float
    ) -> Float[torch.Tensor, "B K"]:
        """Subtract from each segment the mean of its peers, and divide by their standard deviation (n − 1) if `scale`.

        Segments that are all equal, or without peers: exactly 0.
        """
        result = torch.zeros_like(table)
        if self.live.any():
            groups = Groups(table[self.live], peers[self.live])
            centered = groups.table - groups.table.nanmean(1, keepdim=True)
            result[self.live] = groups.flatten_or_zero(
                centered / (nanstd(groups.table, 1) + eps) if scale else centered
            )
        return result


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

    >>> from rlm_process.step_boundaries import Every
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
