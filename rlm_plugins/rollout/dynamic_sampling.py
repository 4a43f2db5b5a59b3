"""Filling a generation batch with groups that teach: what is taken from each draw, and how draws become one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Int

from rlm_plugins.batch import Batch
from rlm_plugins.dispatch import select
from rlm_plugins.errors import RecipeError

LEFT = ("prompt_ids", "prompt_mask")
"""What TRL pads on the left; everything else that has tokens is padded on the right."""


@dataclass
class Draw:
    """One generation batch of all processes.

    Args:
        out: TRL's dictionary; every tensor with rows has all of them.
        batch: The same rows, sifted.
        columns: Lists with one entry per row: the columns of the completions table.
    """

    out: dict[str, Any]
    batch: Batch
    columns: dict[str, list[Any]]

    def __post_init__(self) -> None:
        if "num_images" in self.out:
            raise RecipeError(
                "a batch with images cannot be refilled: TRL keeps their pixels without saying whose they are",
                where="algorithm.filters",
                hint="take `refill` out; the filter then leaves the batch smaller",
            )


class FullBatch:
    """Takes whole groups out of draw after draw until there are enough.

    Args:
        groups: How many make a batch.
        pad_token: The token id that pads.

    Attributes:
        draws: How many it has seen.
        filled: How many groups it has taken.
    """

    def __init__(self, groups: int, pad_token: int) -> None:
        self.groups, self._pad_token = groups, pad_token
        self._taken: list[Draw] = []
        self._last: tuple[Draw, torch.Tensor] | None = None
        self.draws = self.filled = 0

    def add(self, draw: Draw) -> None:
        """Takes the groups of which something is wanted, in order, as long as there is room."""
        wanted = draw.batch.counts_for_refill.view(self.groups, -1).any(1)
        chosen = wanted.nonzero().squeeze(1)[: self.groups - self.filled]
        self._last = draw, (~wanted).nonzero().squeeze(1)
        self._taken.append(self._rows(draw, chosen))
        self.draws += 1
        self.filled += len(chosen)

    @property
    def full(self) -> bool:
        """Whether every place is taken by a group that teaches."""
        return self.filled == self.groups

    def finish(self) -> Draw:
        """The batch; groups the last draw dropped stand in the places that are left, and train nothing."""
        assert self._last is not None
        last, dropped = self._last
        rest = self._rows(last, dropped[: self.groups - self.filled])
        rest.batch = replace(rest.batch, keep_mask=torch.zeros_like(rest.batch.keep_mask))
        whole = joined([*self._taken, rest], self._pad_token)
        numbers = torch.arange(self.groups, device=whole.batch.group.device)
        whole.batch.group = numbers.repeat_interleave(len(whole.batch.group) // self.groups)
        return whole

    def _rows(self, draw: Draw, groups: Int[torch.Tensor, "B"]) -> Draw:
        places = torch.arange(len(draw.batch.group), device=groups.device).view(self.groups, -1)
        return taken(draw, places[groups].flatten())


def taken(draw: Draw, rows: Int[torch.Tensor, "B"]) -> Draw:
    """These rows of a draw."""
    numbers = rows.tolist()
    out = {name: x[rows] if has_rows(x) else x for name, x in draw.out.items()}
    columns = {name: [values[i] for i in numbers] for name, values in draw.columns.items() if values}
    return Draw(out, select(draw.batch, rows), columns)


def joined(draws: Sequence[Draw], pad_token: int) -> Draw:
    """Draws one below the other, padded to the longest."""
    first = draws[0]
    names = dict.fromkeys(name for draw in draws for name in draw.columns)
    columns = {name: [x for draw in draws for x in _column(draw, name)] for name in names}
    batch = {f.name: _below([getattr(draw.batch, f.name) for draw in draws]) for f in fields(Batch)}
    out = {
        name: _below(
            [draw.out[name] for draw in draws],
            left=name in LEFT,
            filling=pad_token if name in ("prompt_ids", "completion_ids") else 0,
        )
        for name in first.out
    }
    return Draw(out, Batch(**batch), columns)


def _column(draw: Draw, name: str) -> list[Any]:
    """A column of the table; a reward need not have written into it every time."""
    return draw.columns.get(name) or [None] * len(draw.batch.group)


def _below(values: Sequence[Any], *, left: bool = False, filling: int = 0) -> Any:
    """Values of several draws as one: tensors and lists row under row, mappings name by name, the rest as the first."""
    first = values[0]
    if isinstance(first, Mapping):
        return {name: _below([value[name] for value in values]) for name in first}
    if isinstance(first, list):
        return [x for value in values for x in value]
    if not has_rows(first):
        return first
    width = max(x.shape[1] for x in values) if first.dim() == 2 else 0
    return torch.cat([padded(x, width, left, filling) if width else x for x in values])


def padded(x: torch.Tensor, width: int, left: bool = False, filling: int = 0) -> torch.Tensor:
    """A (B, T) tensor as (B, width)."""
    room = width - x.shape[1]
    return torch.nn.functional.pad(x, (room, 0) if left else (0, room), value=filling)


def has_rows(x: Any) -> bool:
    """Whether it is a tensor with an entry per row, and no single number."""
    return isinstance(x, torch.Tensor) and x.dim() > 0
