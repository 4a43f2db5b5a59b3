"""Groups of completions that grow as a tree, forked at the best of some points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlm_plugins.builtin.tree_rollouts import Generate, fork


class ForkPoint(NamedTuple):
    """A place where a completion may be forked.

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
    """The completions that grow from one trunk.

    Args:
        points: Completion → its points that were not forked yet, best first.
    """

    trunk: int
    points: dict[int, list[ForkPoint]] = field(default_factory=dict)

    def take(self, number: int, branches: int) -> list[tuple[int, int]]:
        """Remove the best points; return completion and kept tokens of `number` forks, `branches` at each point.

        Where points are missing, forks start at the beginning of the trunk.
        """
        open_points = [(point, row) for row, points in self.points.items() for point in points]
        best = sorted(open_points, key=lambda pair: (-pair[0].score, pair[1], pair[0].kept))[: -(-number // branches)]
        for point, row in best:
            self.points[row].remove(point)
        forks = [(row, point.kept) for point, row in best for _ in range(branches)]
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
    """Generate complete groups as trees: each trunk is forked at its `forks` best points per round, until all is full.

    Args:
        generate: The function of that name that a rollout source receives.
        prompts: One per completion.
        source_index: Per completion, its index in its group.
        trunks: Completions of a group that are generated from the prompt.
        forks: Forks of each tree per round.
        find: Returns the points of new completions; called once per round.
        branches: Forks at each point.
    """
    size = max(source_index, default=-1) + 1
    first = [start for start, number in enumerate(source_index) if number == 0]
    trees = {start: [_Tree(start + n) for n in range(min(trunks, size))] for start in first}
    new = [tree.trunk for group in trees.values() for tree in group]
    rows = dict(zip(new, generate([prompts[i] for i in new]), strict=True))
    owner, shared = {tree.trunk: tree for group in trees.values() for tree in group}, dict.fromkeys(new, 0)
    grown = min(trunks, size)
    while grown < size:
        for row, points in zip(new, find(new, [rows[i] for i in new], [shared[i] for i in new]), strict=True):
            owner[row].points[row] = points
        new, parents = [], list[list[int]]()
        for start, group in trees.items():
            taken = [(tree, *place) for tree in group for place in tree.take(forks, branches)][: size - grown]
            for number, (tree, parent, kept) in enumerate(taken):
                row = start + grown + number
                owner[row], shared[row] = tree, kept
                new.append(row)
                parents.append(rows[parent])
        kept_lengths = [shared[row] for row in new]
        rows |= dict(zip(new, fork(generate, [prompts[i] for i in new], parents, kept_lengths), strict=True))
        grown += len(new) // max(len(trees), 1)
    return [rows[i] for i in range(len(prompts))]
