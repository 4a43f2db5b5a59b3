"""Completions that share a beginning: what sampled values of steps, and trees, are made of. (Offered by `rollouts`.)"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, PositiveInt

Write = Callable[..., list[list[int]]]
Choose = Callable[[int, Sequence[int], int], int]


def fork(
    write: Write, prompts: Sequence[Any], trunks: Sequence[Sequence[int]], places: Sequence[int]
) -> list[list[int]]:
    """Completions that begin like a trunk and are written on by the policy from a place on.

    Args:
        write: The word of that name that a rollout source is given.
        prompts: One per row.
        trunks: Per row, the token ids it branches from.
        places: Per row, how many tokens of the trunk it keeps.

    Returns:
        Per row, the tokens it kept and those that were written after them.
    """
    kept = [list(trunk[:place]) for trunk, place in zip(trunks, places, strict=True)]
    return [start + rest for start, rest in zip(kept, write(prompts, prefixes=kept), strict=True)]


def grown(
    write: Write, prompts: Sequence[Any], place: Sequence[int], *, trunks: int, forks: int | None, choose: Choose
) -> tuple[list[list[int]], list[int]]:
    """Whole groups as trees: the first rows from nothing, then in rounds the others, forked from those that are there.

    Args:
        write, prompts, place: As a rollout source is given them.
        trunks: Rows of a group that are written from nothing.
        forks: How often each row is forked per round, until the group is full; None: as often as needed, in one round.
        choose: Says where a row is forked: of its number among `prompts`, its tokens, and how many of them it kept
            itself from the row it was forked from.

    Returns:
        Token ids per row, and how many of them it kept from another.
    """
    size = max(place, default=-1) + 1
    starts = [i for i, number in enumerate(place) if number == 0]
    first = [start + number for start in starts for number in range(min(trunks, size))]
    rows = dict(zip(first, write([prompts[i] for i in first]), strict=True))
    kept = dict.fromkeys(first, 0)
    there = min(trunks, size)
    while there < size:
        new = min(size - there, size if forks is None else there * forks)
        parents = {start + there + n: start + n % there for start in starts for n in range(new)}
        kept |= {row: choose(parent, rows[parent], kept[parent]) for row, parent in parents.items()}
        trunk_of, places = [rows[parent] for parent in parents.values()], [kept[row] for row in parents]
        rows |= dict(zip(parents, fork(write, [prompts[i] for i in parents], trunk_of, places), strict=True))
        there += new
    return [rows[i] for i in range(len(prompts))], [kept[i] for i in range(len(prompts))]


class Branches:
    """Some completions of the group, and the group's other rows forked from them at a token.

    The first of its rows, `trunks` of them, are written by the policy from the start; the others keep the tokens of a
    row up to a place and are written on from there. The place is the token number `token`, or else the share `at` of
    what that row wrote itself; a row's last token is never kept, since it ends the answer. By default all are forked
    from the trunks; with `forks` each row is forked so often per round, and those that came of it in the next round
    too, until the group is full: with 1 the rows double, 1, 2, 4, 8.

    What a branch has kept is the other row's and trained on there alone; with `train_prefix` in every branch as well.
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

    def __call__(self, prompts: Sequence[Any], source_index: Sequence[int], generate: Write) -> dict[str, Any]:
        rows, kept = grown(generate, prompts, source_index, trunks=self.trunks, forks=self.forks, choose=self._place)
        mask = [
            [self.train_prefix or t >= start for t in range(len(row))] for row, start in zip(rows, kept, strict=True)
        ]
        return {"completion_ids": rows, "mask": mask}

    def _place(self, row: int, tokens: Sequence[int], start: int) -> int:
        wanted = start + int(self.at * (len(tokens) - start)) if self.token is None else self.token
        return max(0, min(wanted, len(tokens) - 1))
