"""Where the steps of an answer end, in tokens: lines, paragraphs, sentences, a pattern, a count, or a rule of yours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from jaxtyping import Bool, Int

from rlm_plugins.errors import PartError
from rlm_plugins.ingredients.borrowed import borrow_function
from rlm_plugins.lazy import torch
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


def numbers(
    completions: Sequence[Sequence[int]], cut: Cut, mask: Bool[torch.Tensor, "B T"]
) -> Int[torch.Tensor, "B T"]:
    """To which step of its row each token belongs, from 0; −1 beyond the end of the row."""
    table = torch.full(mask.shape, -1, device=mask.device)
    for row, ids in enumerate(completions):
        for number, (start, end) in enumerate(pairwise((0, *cut(ids)))):
            table[row, start:end] = number
    return table
