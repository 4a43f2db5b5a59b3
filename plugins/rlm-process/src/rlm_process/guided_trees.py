"""Rollout sources whose groups are trees, forked where the policy was uncertain, or where later steps attend to."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, NonNegativeInt, PositiveInt

from rlm_plugins.builtin.tree_rollouts import Generate, fork
from rlm_process.attention_influence import influences
from rlm_process.knobs import Steps
from rlm_process.step_boundaries import step_cutter
from rlm_process.token_texts import match_ends, token_texts


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


class EntropyTree:
    """The group as trees that are forked at the tokens of which the policy was least certain (EPTree).

    The first `trunks` completions are generated from the prompt. Then, in rounds, each tree is forked before its
    `forks` tokens with the largest h, until the group is full: h = −log π(yₜ | x, y_<t), or with `by` "entropy" the
    entropy of the distribution. Only tokens that a completion generated itself count, without the first one. A point
    is forked in one round only, `branches` times. TreeRL, arXiv 2506.11902 §3.1, whose M is `trunks`, T is `branches`,
    and N · T is `forks`; its text speaks of entropy, its code computes −log π, and may fork a point again. ETTRL's
    rollout, 2508.11356, has one round by entropy, with M, B and N · B in these places.

    `until` is a regular expression: tokens after its first match are never forked. The authors' code has
    "(?i)conclusion|answer". Every token is trained on in every completion that keeps it; the advantage `tree` weights
    for that. Equal h: the earlier completion, then the earlier token. A completion of one token has no point; a tree
    without points is forked at its beginning.
    """

    whole_groups = True

    def __init__(
        self,
        *,
        trunks: PositiveInt = 1,
        forks: PositiveInt = 2,
        branches: PositiveInt = 1,
        by: Literal["surprisal", "entropy"] = "surprisal",
        until: str | None = None,
    ) -> None:
        self.trunks, self.forks, self.branches, self.by = trunks, forks, branches, by
        self.until = None if until is None else re.compile(until)

    def __call__(
        self, prompts: Sequence[Any], source_index: Sequence[int], generate: Generate, tokenizer: Any, trainer: Any
    ) -> dict[str, Any]:
        """Return the completions of each group."""
        prompt_ids = trainer.prompt_ids(prompts)

        def find(new: Sequence[int], rows: Sequence[Sequence[int]], starts: Sequence[int]) -> list[list[ForkPoint]]:
            logp, entropy = trainer.token_statistics([prompt_ids[i] for i in new], rows)
            scores = (entropy if self.by == "entropy" else -logp).tolist()
            return [self._points(*each, tokenizer) for each in zip(rows, starts, scores, strict=True)]

        shape = {"trunks": self.trunks, "forks": self.forks, "branches": self.branches}
        return {"completion_ids": grow_at_points(generate, prompts, source_index, **shape, find=find)}

    def _points(self, row: Sequence[int], start: int, scores: Sequence[float], tokenizer: Any) -> list[ForkPoint]:
        """Return a point before every token but the first that the completion generated itself."""
        end = len(row)
        if self.until is not None:
            end = min([end, *match_ends(self.until, token_texts(row, tokenizer))])
        return [ForkPoint(scores[t], t) for t in range(max(start, 1), end)]


class AttentionTree:
    """The group as trees that are forked at the steps to which later steps attend most (AttnRL).

    The first `trunks` completions are generated from the prompt. Then, in rounds, each tree is forked before its
    `forks` steps with the largest influence, until the group is full. FCIₖ = maxₗₕ Σⱼ aˡʰⱼₖ over the steps j ≥ k + Δ:
    aˡʰⱼₖ is the mean attention of the tokens of step j to those of step k in head h of layer l. AttnRL, arXiv
    2509.26628, with Δ called `gap`, 4 in its code.

    Points are the steps within the top `share` of a completion, at least `distance` tokens apart and from its
    start. The code has 512, for completions of thousands of tokens. The first step is no point. The code takes the
    points in the order of the text, here those with the largest influence come first. `steps` defines a step. The pass
    that computes attention keeps all weights of a layer, (heads, T, T): long completions need memory. With `until`
    steps after a match of this regular expression are no points.

    Every token is trained on in every completion that keeps it; the advantage `tree` weights for that. A completion
    of one step has no point; a tree without points is forked at its beginning.
    """

    whole_groups = True

    def __init__(
        self,
        *,
        steps: Steps = "lines",
        trunks: PositiveInt = 1,
        forks: PositiveInt = 2,
        share: Annotated[float, Field(gt=0, le=1)] = 0.2,
        gap: PositiveInt = 4,
        distance: NonNegativeInt = 0,
        until: str | None = None,
    ) -> None:
        self.steps, self.trunks, self.forks = steps, trunks, forks
        self.share, self.gap, self.distance = share, gap, distance
        self.until = None if until is None else re.compile(until)

    def __call__(
        self, prompts: Sequence[Any], source_index: Sequence[int], generate: Generate, tokenizer: Any, trainer: Any
    ) -> dict[str, Any]:
        """Return the completions of each group."""
        prompt_ids = trainer.prompt_ids(prompts)
        cut = step_cutter(self.steps, tokenizer, where="rollouts: attention_tree.steps")
        policy = trainer.accelerator.unwrap_model(trainer.model)

        def find(new: Sequence[int], rows: Sequence[Sequence[int]], starts: Sequence[int]) -> list[list[ForkPoint]]:
            points = []
            for i, row, start in zip(new, rows, starts, strict=True):
                ends = cut(row)
                scores = influences(policy, prompt_ids[i], row, ends, gap=self.gap)
                points.append(self._points(row, start, ends, scores, tokenizer))
            return points

        rows = grow_at_points(generate, prompts, source_index, trunks=self.trunks, forks=self.forks, find=find)
        return {"completion_ids": rows}

    def _points(
        self, row: Sequence[int], start: int, ends: Sequence[int], scores: Sequence[float], tokenizer: Any
    ) -> list[ForkPoint]:
        """Return points before the steps of the largest influence, at a distance from each other."""
        last = len(row)
        if self.until is not None:
            last = min([last, *match_ends(self.until, token_texts(row, tokenizer))])
        number = max(1, round(self.share * len(scores)))
        ranked = sorted(range(1, len(scores)), key=lambda k: (-scores[k], k))[:number]
        kept: list[ForkPoint] = []
        for k in ranked:
            position = ends[k - 1]
            apart = all(abs(position - point.kept) >= self.distance for point in kept)
            if apart and max(start, self.distance) <= position < last and position > start - (start == 0):
                kept.append(ForkPoint(scores[k], position))
        return kept
