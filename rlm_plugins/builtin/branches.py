"""Completions that share a beginning: what sampled values of steps, and trees, are made of. (Offered by `rollouts`.)"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt

Write = Callable[..., list[list[int]]]


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


class Branches:
    """One completion of the group, and the group's other rows forked from it at a token.

    The first of its rows is the trunk, written by the policy from the start; the others keep its tokens up to a place
    and are written on from there. The place is the token number `token`, or else the share `at` of the trunk's length;
    the trunk's last token is never kept, since it ends the answer.

    What a branch has kept is the trunk's and trained on there alone; with `train_prefix` in every branch as well.
    """

    whole_groups = True

    def __init__(
        self,
        *,
        at: Annotated[float, Field(ge=0, le=1)] = 0.5,
        token: NonNegativeInt | None = None,
        train_prefix: bool = False,
    ) -> None:
        self.at, self.token, self.train_prefix = at, token, train_prefix

    def __call__(self, prompts: Sequence[Any], place: Sequence[int], write: Write) -> dict[str, Any]:
        first = [i for i, number in enumerate(place) if number == 0]
        others = [i for i, number in enumerate(place) if number > 0]
        trunks = dict(zip(first, write([prompts[i] for i in first]), strict=True))
        trunk_of = [trunks[i - place[i]] for i in others]
        places = [self._place(trunk) for trunk in trunk_of]
        rows = trunks | dict(zip(others, fork(write, [prompts[i] for i in others], trunk_of, places), strict=True))
        kept = dict(zip(others, places, strict=True))
        mask = [[self.train_prefix or t >= kept.get(i, 0) for t in range(len(rows[i]))] for i in range(len(prompts))]
        return {"completion_ids": [rows[i] for i in range(len(prompts))], "mask": mask}

    def _place(self, trunk: Sequence[int]) -> int:
        wanted = int(self.at * len(trunk)) if self.token is None else self.token
        return max(0, min(wanted, len(trunk) - 1))
