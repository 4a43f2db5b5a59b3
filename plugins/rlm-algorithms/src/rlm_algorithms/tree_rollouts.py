"""Tree rollouts: completions with shared prefixes; registered by `rollouts`; also used for sampled step values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt

Generate = Callable[..., list[list[int]]]
ForkPoint = Callable[[int, Sequence[int], int], int]


def fork(
    generate: Generate, prompts: Sequence[Any], parents: Sequence[Sequence[int]], prefix_lengths: Sequence[int]
) -> list[list[int]]:
    """Generate completions that start with a prefix of another completion.

    Args:
        generate: The function of that name that a rollout source receives.
        prompts: One per completion.
        parents: Per completion, the token ids that it branches from.
        prefix_lengths: Per completion, how many tokens of the parent it keeps.

    Returns:
        Per completion, the prefix and the tokens generated after it.
    """
    prefixes = [list(parent[:length]) for parent, length in zip(parents, prefix_lengths, strict=True)]
    return [prefix + rest for prefix, rest in zip(prefixes, generate(prompts, prefixes=prefixes), strict=True)]


def grow_trees(
    generate: Generate,
    prompts: Sequence[Any],
    source_index: Sequence[int],
    *,
    trunks: int,
    forks: int | None,
    fork_point: ForkPoint,
) -> tuple[list[list[int]], list[int]]:
    """Generate complete groups as trees: the first completions from the prompt, then the others as forks, in rounds.

    Args:
        generate: The function of that name that a rollout source receives.
        prompts: One per completion.
        source_index: Per completion, its index in its group.
        trunks: Completions of a group that are generated from the prompt.
        forks: Forks of each completion per round, until the group is full; None: as many as needed, in one round.
        fork_point: ``fork_point(index, tokens, prefix_length)`` → number of tokens that a fork keeps of a completion.

    Returns:
        Token ids per completion, and the length of the prefix that it shares with its parent.
    """
    size = max(source_index, default=-1) + 1
    starts = [i for i, number in enumerate(source_index) if number == 0]
    first = [start + number for start in starts for number in range(min(trunks, size))]
    rows = dict(zip(first, generate([prompts[i] for i in first]), strict=True))
    shared = dict.fromkeys(first, 0)
    grown = min(trunks, size)
    while grown < size:
        new = min(size - grown, size if forks is None else grown * forks)
        parents = {start + grown + n: start + n % grown for start in starts for n in range(new)}
        shared |= {row: fork_point(parent, rows[parent], shared[parent]) for row, parent in parents.items()}
        parent_ids = [rows[parent] for parent in parents.values()]
        lengths = [shared[row] for row in parents]
        rows |= dict(zip(parents, fork(generate, [prompts[i] for i in parents], parent_ids, lengths), strict=True))
        grown += new
    return [rows[i] for i in range(len(prompts))], [shared[i] for i in range(len(prompts))]


class Branches:
    """Tree rollouts: some completions of a group from the prompt, the others forked from them at a token.

    The first `trunks` completions are generated from the prompt. Each of the others keeps a prefix of one of them and
    is continued from there. The fork point is the token number `token`, or else at the share `at` of the tokens that
    the parent generated itself; the last token of the parent is never kept, since it ends the completion. By default
    all are forked from the trunks. With `forks`, each completion is forked that often per round, and its forks in the
    next round too, until the group is full: with 1 their number doubles, 1, 2, 4, 8.

    A shared prefix is trained on in the parent only; with `train_prefix` in every fork as well.
    """

    whole_groups = True

    def __init__(
        self,
        *,
        at: Annotated[float, Field(ge=0, le=1)] = 0.5,
        token: NonNegativeInt | None = None,
        trunks: PositiveInt = 1,
        forks: PositiveInt | None = None,
        train_prefix: bool = False,
    ) -> None:
        self.at, self.token, self.trunks, self.forks = at, token, trunks, forks
        self.train_prefix = train_prefix

    def __call__(self, prompts: Sequence[Any], source_index: Sequence[int], generate: Generate) -> dict[str, Any]:
        rows, shared = grow_trees(
            generate, prompts, source_index, trunks=self.trunks, forks=self.forks, fork_point=self._fork_point
        )
        starts = [0] * len(rows) if self.train_prefix else shared
        mask = [[False] * start + [True] * (len(row) - start) for row, start in zip(rows, starts, strict=True)]
        return {"completion_ids": rows, "mask": mask}

    def _fork_point(self, index: int, tokens: Sequence[int], start: int) -> int:
        point = start + int(self.at * (len(tokens) - start)) if self.token is None else self.token
        return max(0, min(point, len(tokens) - 1))
