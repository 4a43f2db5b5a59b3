"""Generation of groups as trees, whose completions are forked at the points with the highest scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlm_algorithms.tree_rollouts import Generate, fork


class ForkPoint(NamedTuple):
    """A position at which a completion may be forked.

    Args:
        score: Points with the highest scores are forked first.
        kept: Tokens of the completion that the fork keeps.
    """

    score: float
    kept: int


FindPoints = Callable[[Sequence[int], Sequence[Sequence[int]], Sequence[int]], list[list[ForkPoint]]]
"""Indices of new completions, their token ids, the lengths of the prefixes they share → the points of each."""


@dataclass
class _Tree:
    """The completions that are forked from one trunk.

    Args:
        trunk: Index of the completion that is generated from the prompt.
        points: Index of a completion → its points that are not forked yet, best first.
    """

    trunk: int
    points: dict[int, list[ForkPoint]] = field(default_factory=dict)

    def take(self, number: int, branches: int) -> list[tuple[int, int]]:
        """Remove the best points; return index and kept tokens of `number` forks, `branches` at each point.

        If there are too few points, forks start at the beginning of the trunk.
        """
        candidates = [(-point.score, index, point.kept, point) for index in self.points for point in self.points[index]]
        best = sorted(candidates)[: -(-number // branches)]
        for _, index, _, point in best:
            self.points[index].remove(point)
        forks = [(index, kept) for _, index, kept, _ in best for _ in range(branches)]
        return [*forks, *[(self.trunk, 0)] * (number - len(forks))][:number]


def grow_at_points(
    generate: Generate,
    prompts: Sequence[Any],
    source_index: Sequence[int],
    *,
    trunks: int,
    forks: int,
    find: FindPoints,
    branches: int = 1,
) -> list[list[int]]:
    """Generate complete groups as trees: each is forked at its `forks` best points per round, until the group is full.

    Args:
        generate: The function of that name that a rollout source receives.
        prompts: One per completion.
        source_index: Per completion, its index in its group.
        trunks: Completions of a group that are generated from the prompt.
        forks: Forks of each tree per round.
        find: Returns the points of new completions; called once per round.
        branches: Forks at each point.

    Returns:
        Token ids of each completion.
    """
    group_size = max(source_index, default=-1) + 1
    group_starts = [index for index, number in enumerate(source_index) if number == 0]
    trees = {start: [_Tree(start + n) for n in range(min(trunks, group_size))] for start in group_starts}
    new = [tree.trunk for group in trees.values() for tree in group]
    completions = dict(zip(new, generate([prompts[i] for i in new]), strict=True))
    tree_of, prefix_lengths = {tree.trunk: tree for group in trees.values() for tree in group}, dict.fromkeys(new, 0)
    num_generated = min(trunks, group_size)
    while num_generated < group_size:
        points_of_new = find(new, [completions[i] for i in new], [prefix_lengths[i] for i in new])
        for index, points in zip(new, points_of_new, strict=True):
            tree_of[index].points[index] = points
        new, parents = [], list[list[int]]()
        for start, group in trees.items():
            group_forks = [(tree, *position) for tree in group for position in tree.take(forks, branches)]
            for number, (tree, parent, kept) in enumerate(group_forks[: group_size - num_generated]):
                index = start + num_generated + number
                tree_of[index], prefix_lengths[index] = tree, kept
                new.append(index)
                parents.append(completions[parent])
        forked = fork(generate, [prompts[i] for i in new], parents, [prefix_lengths[i] for i in new])
        completions |= dict(zip(new, forked, strict=True))
        num_generated += len(new) // max(len(trees), 1)
    return [completions[i] for i in range(len(prompts))]
