"""Micro-batches by weight: as many rows as a budget of tokens holds, a prompt counted once for its group.

Rows that are short, share a prompt or teach nothing weigh less than their micro-batch was meant for. A budget fills it
up: group after group while they fit, and a group is only parted where it is larger than the budget. Without a budget
whole micro-batches are joined where they are small. The portions of an optimiser step go to its last micro-batches, and
those that are left without take no time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise

import torch
from jaxtyping import Bool, Int

from rlm_plugins.packing.regroup import MicroBatch, sorted_rows, teaches
from rlm_plugins.rollout.dynamic_sampling import has_batch_dim

KEYS = 8
"""A completion keeps a copy of the keys and values it looks at. For one token these are less than an eighth of what a
token keeps in a transformer of the usual shape (`estimate/transformer.py`)."""
PORTIONS = "portions"
"""Under this name a micro-batch holds those it is made of."""
Sizes = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], list[int]]
"""(group, shown, written, read) → how many rows each portion has."""


def full(rows: int, prompt: int, completion: int) -> float:
    """What rows of the greatest length weigh, each with a prompt of its own; lengths in tokens."""
    tokens = completion - 1
    return rows * (prompt + tokens + (prompt + 2 * tokens) / KEYS)


def portioned(
    micro_batches: Sequence[MicroBatch],
    window: int,
    sizes: Sizes,
    *,
    skips: bool = False,
    most: Callable[[int], int] = int,
) -> list[MicroBatch]:
    """The same rows in portions, every micro-batch with a list of them: mostly one, sometimes none.

    Args:
        micro_batches: As `regroup` takes them.
        window: Micro-batches of an optimiser step, of which the generation holds a whole number.
        sizes: `cut` or `joined`, but for the rows.
        skips: Whether rows without advantage are not read.
        most: The largest of what the processes say: all of them take as many portions.
    """
    found: list[MicroBatch] = []
    for first in range(0, len(micro_batches), window):
        step = micro_batches[first : first + window]
        rows = sorted_rows(step)
        read = teaches(rows["advantages"]) if skips else torch.ones_like(rows["group"], dtype=torch.bool)
        shown, written = rows["prompt_mask"].sum(1), rows["completion_mask"].sum(1)
        counts = sizes(rows["group"], shown, written, read)
        counts = parted(counts, most(len(counts)))
        pieces = {name: x.split(counts) for name, x in rows.items()}
        rest = {name: x for name, x in step[0].items() if not has_batch_dim(x)}
        portions = [{**rest, **{name: x[i] for name, x in pieces.items()}} for i in range(len(counts))]
        bounds = [len(portions) * i // window for i in range(window + 1)]
        found += [{PORTIONS: portions[low:high]} for low, high in pairwise(bounds)]
    return found


def cut(
    group: Int[torch.Tensor, "B"],
    shown: Int[torch.Tensor, "B"],
    written: Int[torch.Tensor, "B"],
    read: Bool[torch.Tensor, "B"],
    budget: float,
) -> list[int]:
    """How many rows each portion has; the rows of a group stand side by side.

    Args:
        group: Whose rows they are.
        shown: Tokens of the prompt.
        written: Tokens of the completion, of which the last is not read.
        read: Whether a row is read at all.
        budget: Most tokens of a portion, and `KEYS`.
    """
    weights, prompts = _weights(shown, written, read)
    kinds = list(zip(group.tolist(), read.tolist(), strict=True))
    sizes, filled = [0], 0.0
    for _, members in groupby(range(len(kinds)), key=kinds.__getitem__):
        rows = list(members)
        prompt = prompts[rows[0]]
        fits = prompt + sum(weights[row] for row in rows) <= budget
        pieces = [rows] if fits else [[row] for row in rows]
        for piece in pieces:
            weight = sum(weights[row] for row in piece)
            again = prompt if piece[0] == rows[0] else 0  # else it stands in this portion already
            if sizes[-1] and filled + again + weight > budget:
                sizes, filled, again = [*sizes, 0], 0.0, prompt
            sizes[-1] += len(piece)
            filled += again + weight
    return sizes


def joined(
    group: Int[torch.Tensor, "B"],
    shown: Int[torch.Tensor, "B"],
    written: Int[torch.Tensor, "B"],
    read: Bool[torch.Tensor, "B"],
    *,
    rows: int,
    budget: float,
) -> list[int]:
    """The same, of whole micro-batches: neighbours go together while they are within the budget.

    Args:
        group: Whose rows they are.
        shown: Tokens of the prompt.
        written: Tokens of the completion.
        read: Whether a row is read at all.
        rows: Of a micro-batch; one alone may have more tokens than the budget.
        budget: Most tokens of several, and `KEYS`.
    """
    weights, prompts = _weights(shown, written, read)
    groups, sizes, filled = group.tolist(), [0], 0.0
    for first in range(0, len(groups), rows):
        members = range(first, min(first + rows, len(groups)))
        weight = sum(weights[row] for row in members)
        weight += sum({groups[row]: prompts[row] for row in members}.values())
        if sizes[-1] and filled + weight > budget:
            sizes, filled = [*sizes, 0], 0.0
        sizes[-1] += len(members)
        filled += weight
    return sizes


def _weights(shown: torch.Tensor, written: torch.Tensor, read: torch.Tensor) -> tuple[list[float], list[int]]:
    """Of each row what its completion weighs, and its prompt."""
    tokens = (written - 1).clamp(min=0)
    return ((tokens + (shown + 2 * tokens) / KEYS) * read).tolist(), (shown * read).tolist()


def parted(sizes: Sequence[int], count: int) -> list[int]:
    """As many portions as `count` says, the one with most rows cut in half until there are."""
    found = list(sizes)
    while len(found) < count:
        at = found.index(max(found))
        found[at : at + 1] = [found[at] - found[at] // 2, found[at] // 2]
    return found
