"""Where the steps of an answer end, in tokens: lines, paragraphs, sentences, a pattern, a count, or a rule of yours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from jaxtyping import Bool, Float, Int

from rlm_plugins.errors import PartError
from rlm_plugins.lazy import torch
from rlm_plugins.registry.import_path import borrow_function
from rlm_process.knobs import PATTERNS, Every, Pattern, Steps
from rlm_process.pieces import after, pieces

Rule = Callable[[Sequence[str]], Iterable[int]]
"""The text of each token → after how many tokens a step ends. The end of the answer need not be named."""

Cut = Callable[[Sequence[int]], list[int]]
"""Token ids of an answer → after how many tokens each step ends: rising, the last being the number of tokens."""


def cutter(steps: Steps, tokenizer: Any, *, where: str) -> Cut:
    """What a knob says, as a function.

    Where the text decides, a step has something to read in it: what is blank, or an end token alone, belongs to the
    step before (at the very beginning to the one after). A step ends with the token that holds the end of what ends it.

    Args:
        steps: The knob.
        tokenizer: Reads the tokens; a count needs none.
        where: The knob's address, for the error.

    Raises:
        RecipeError: There is nothing at the address.

    >>> from rlm_process.knobs import Every
    >>> cutter(Every(every=2), None, where="steps")([7, 7, 7])
    [2, 3]
    """
    if isinstance(steps, Every):
        return lambda ids: [*range(steps.every, len(ids), steps.every), len(ids)] if len(ids) else []
    rule = _rule(steps, where)

    def cut(ids: Sequence[int]) -> list[int]:
        said = pieces(ids, tokenizer)
        return _readable(sorted({*_inside(rule(said), len(ids), where), len(ids)}), said) if said else []

    return cut


def _rule(steps: Pattern | str, where: str) -> Rule:
    if isinstance(steps, Pattern) or steps in PATTERNS:
        pattern = re.compile(steps.pattern if isinstance(steps, Pattern) else PATTERNS[steps])
        return lambda said: after(pattern, said)
    return borrow_function(steps, where=where)


def _inside(ends: Iterable[int], tokens: int, where: str) -> list[int]:
    found = list(ends)
    if wrong := [end for end in found if not 0 <= end <= tokens]:
        raise PartError(f"a step ends after {wrong[0]} tokens", where=where, allowed=f"0 to {tokens} in this answer")
    return found


def _readable(ends: Sequence[int], said: Sequence[str]) -> list[int]:
    """Those ends that leave no step blank; the last stays the last."""
    kept: list[int] = []
    for end in ends:
        if "".join(said[kept[-1] if kept else 0 : end]).strip():
            kept.append(end)
    return [*kept[:-1], ends[-1]]


Spans = list[tuple[int, int]]
"""Where each step of a row begins, and after how many tokens it ends."""


def own_steps(
    completions: Sequence[Sequence[int]], cut: Cut, mask: Bool[torch.Tensor, "B T"] | None = None
) -> list[Spans]:
    """The steps of every row.

    Args:
        completions: Token ids.
        cut: Says where a step ends.
        mask: In a world that answers, which tokens the policy wrote: each of its turns is cut by itself, and what the
            world says is in no step.

    >>> own = torch.tensor([[True, True, True, False, True]])
    >>> own_steps([[1, 2, 3, 4, 5]], lambda ids: [*range(2, len(ids), 2), len(ids)], own)
    [[(0, 2), (2, 3), (4, 5)]]
    """
    turns = [[(0, len(ids))] for ids in completions] if mask is None else [_runs(row) for row in mask.tolist()]
    return [
        [(start + a, start + b) for start, end in runs for a, b in pairwise((0, *cut(ids[start:end])))]
        for ids, runs in zip(completions, turns, strict=True)
    ]


def _runs(own: Sequence[bool]) -> Spans:
    starts = [place for place, (before, now) in enumerate(pairwise((False, *own))) if now and not before]
    ends = [place + 1 for place, (now, after) in enumerate(pairwise((*own, False))) if now and not after]
    return list(zip(starts, ends, strict=True))


def unpaid(
    mask: Bool[torch.Tensor, "B T"], turn_rewards: Float[torch.Tensor, "B T"] | None
) -> Float[torch.Tensor, "B T"]:
    """Nothing for every token, as precise as what a world pays."""
    return torch.zeros(mask.shape, device=mask.device) if turn_rewards is None else torch.zeros_like(turn_rewards)


def numbers(spans: Sequence[Spans], like: Bool[torch.Tensor, "B T"]) -> Int[torch.Tensor, "B T"]:
    """To which step of its row each token belongs, from 0; −1 where it is in none."""
    table = torch.full(like.shape, -1, device=like.device)
    for row, steps in enumerate(spans):
        for number, (start, end) in enumerate(steps):
            table[row, start:end] = number
    return table
