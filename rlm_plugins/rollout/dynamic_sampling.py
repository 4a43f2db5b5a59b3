"""Dynamic sampling: a generation batch of groups that pass the filters, from several sampling rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import torch
from jaxtyping import Int

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.dispatch import select
from rlm_plugins.errors import RecipeError

LEFT_PADDED = ("prompt_ids", "prompt_mask")
"""Tensors that TRL pads on the left; all others with tokens are padded on the right."""


@dataclass
class SamplingRound:
    """One generation batch of all processes: TRL's dictionary, the batch after the filters, columns of the log."""

    out: dict[str, Any]
    batch: Batch
    columns: dict[str, list[Any]]

    def __post_init__(self) -> None:
        """Raise RecipeError if the prompts have images."""
        if "num_images" in self.out:
            raise RecipeError(
                "`refill` does not support prompts with images: TRL does not mark which completion their pixels are of",
                where="algorithm.filters",
                hint="take `refill` out; the filter then leaves the batch smaller",
            )


class RefillBuffer:
    """Buffer that collects groups that pass the filters, over sampling rounds until the batch is full."""

    def __init__(self, groups: int, pad_token: int) -> None:
        self.groups, self._pad_token = groups, pad_token
        self._collected: list[SamplingRound] = []
        self._last: tuple[SamplingRound, torch.Tensor] | None = None
        self.rounds = self.filled = 0

    def add(self, sampled: SamplingRound) -> None:
        """Collect the groups with a completion that counts for the refill, in order, while there is space."""
        passes = sampled.batch.counts_for_refill.view(self.groups, -1).any(1)
        selected = passes.nonzero().squeeze(1)[: self.groups - self.filled]
        self._last = sampled, (~passes).nonzero().squeeze(1)
        self._collected.append(self._select_groups(sampled, selected))
        self.rounds += 1
        self.filled += len(selected)

    @property
    def full(self) -> bool:
        """True once every group has passed the filters."""
        return self.filled == self.groups

    def finish(self) -> SamplingRound:
        """Return the full batch; dropped groups of the last round fill it, masked out of the loss."""
        assert self._last is not None
        last, dropped = self._last
        filler = self._select_groups(last, dropped[: self.groups - self.filled])
        filler.batch = replace(filler.batch, keep_mask=torch.zeros_like(filler.batch.keep_mask))
        full = concatenate([*self._collected, filler], self._pad_token)
        numbers = torch.arange(self.groups, device=full.batch.group.device)
        full.batch.group = numbers.repeat_interleave(len(full.batch.group) // self.groups)
        return full

    def _select_groups(self, sampled: SamplingRound, groups: Int[torch.Tensor, "B"]) -> SamplingRound:
        indices = torch.arange(len(sampled.batch.group), device=groups.device).view(self.groups, -1)
        return select_completions(sampled, indices[groups].flatten())


def select_completions(sampled: SamplingRound, indices: Int[torch.Tensor, "B"]) -> SamplingRound:
    """Return the completions at `indices`."""
    numbers = indices.tolist()
    out = {name: x[indices] if has_batch_dim(x) else x for name, x in sampled.out.items()}
    columns = {name: list(map(values.__getitem__, numbers)) for name, values in sampled.columns.items() if values}
    return SamplingRound(out, select(sampled.batch, indices), columns)


def concatenate(rounds: Sequence[SamplingRound], pad_token: int) -> SamplingRound:
    """Concatenate sampling rounds along the batch dimension, padded to the longest."""
    names = dict.fromkeys(name for sampled in rounds for name in sampled.columns)
    columns = {name: list(chain.from_iterable(_column(sampled, name) for sampled in rounds)) for name in names}
    batches = [sampled.batch for sampled in rounds]
    batch = {f.name: _concatenate(list(map(attrgetter(f.name), batches))) for f in fields(Batch)}
    out = {
        name: _concatenate(
            [sampled.out[name] for sampled in rounds],
            left=name in LEFT_PADDED,
            pad_value=pad_token if name in ("prompt_ids", "completion_ids") else 0,
        )
        for name in rounds[0].out
    }
    return SamplingRound(out, Batch(**batch), columns)


def _column(sampled: SamplingRound, name: str) -> list[Any]:
    """Return a column of the completions table; a reward need not log to it in every round."""
    return sampled.columns.get(name) or [None] * len(sampled.batch.group)


def _concatenate(values: Sequence[Any], *, left: bool = False, pad_value: int = 0) -> Any:
    """Concatenate tensors and lists, mappings name by name; of anything else return the first."""
    first = values[0]
    if isinstance(first, Mapping):
        return {name: _concatenate(list(map(itemgetter(name), values))) for name in first}
    if isinstance(first, list):
        return list(chain.from_iterable(values))
    if not has_batch_dim(first):
        return first
    width = max(x.shape[1] for x in values) if first.dim() > 1 else 0
    return torch.cat([pad_to_width(x, width, left, pad_value) if width else x for x in values])


def pad_to_width(x: torch.Tensor, width: int, left: bool = False, value: int = 0) -> torch.Tensor:
    """Pad a (B, T, …) tensor to (B, width, …)."""
    padding = width - x.shape[1]
    later = (0, 0) * (x.dim() - 2)
    return torch.nn.functional.pad(x, (*later, padding, 0) if left else (*later, 0, padding), value=value)


def has_batch_dim(x: Any) -> bool:
    """Return True if `x` is a tensor with an entry per completion, not a scalar."""
    return isinstance(x, torch.Tensor) and x.dim() > 0


def pad_sequences(
    prompts: Sequence[torch.Tensor], completions: Sequence[torch.Tensor], pad_token: int
) -> dict[str, torch.Tensor]:
    """Return token ids as TRL's dictionary has them: prompts padded on the left, completions on the right."""
    return {
        "prompt_ids": stack(prompts, True, pad_token),
        "prompt_mask": stack([torch.ones_like(x) for x in prompts], True),
        "completion_ids": stack(completions, False, pad_token),
        "completion_mask": stack([torch.ones_like(x) for x in completions]),
    }


def stack(sequences: Sequence[torch.Tensor], left: bool = False, value: int = 0) -> torch.Tensor:
    """Return (B, T) of sequences of different lengths (T,)."""
    width = max(1, *(len(x) for x in sequences))
    return torch.cat([pad_to_width(x.unsqueeze(0), width, left, value) for x in sequences])
