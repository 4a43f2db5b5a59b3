"""Order of the prompts: the sampler of a generation batch, and the source that calls it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from torch.utils.data import Sampler

from rlm_plugins.equation.dispatch import attribute_errors
from rlm_plugins.equation.statistics import in_order, shuffled
from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.part import Bound

WHERE = "algorithm.sampler"
Order = Callable[[int, int, int], Sequence[int]]
"""(size, epoch, seed) → the order of the prompts in an epoch."""


def require_full_generation(order: Sequence[int], prompts: int) -> None:
    """Check that an epoch is long enough for one generation batch."""
    if len(order) < prompts:
        problem = f"an epoch of {len(order)} prompts is shorter than one generation batch, which takes {prompts}"
        hint = "let it choose more, or make the generation batch smaller"
        raise RecipeError(problem, where=WHERE, hint=hint)


class PromptSampler(Sampler[int]):
    """Sampler of prompt indices: each `generations` times in a row, each block of `prompts` repeated `repeats` times.

    The layout is that of TRL's `RepeatSampler`. The order of an epoch is a pure function of its number, so a resumed
    run continues with the prompts of the interrupted one.

    Args:
        order: Epoch → indices.
        size: Number of examples in the data set.
        prompts: Different prompts per generation batch; a last, incomplete block is dropped.
        generations: Completions per prompt.
        repeats: How often the trainer requests the same block (buffered micro-batches × iterations).
    """

    def __init__(
        self, order: Callable[[int], Sequence[int]], *, size: int, prompts: int, generations: int, repeats: int
    ) -> None:
        self._order, self._size = order, size
        self._prompts, self._generations, self._repeats = prompts, generations, repeats
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; the data loader calls it before each, also after a resume."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        """Yield the indices of one epoch."""
        order = list(self._order(self._epoch))
        require_full_generation(order, self._prompts)
        for start in range(0, len(order) - self._prompts + 1, self._prompts):
            block = order[start : start + self._prompts]
            for _ in range(self._repeats):
                for index in block:
                    yield from [index] * self._generations

    def __len__(self) -> int:
        """Return the number of indices of an epoch with all examples."""
        return self._size // self._prompts * self._prompts * self._generations * self._repeats


def order_of(sampler: Bound | None, *, shuffle: bool = True) -> Order:
    """Return the order of an epoch, by the recipe's sampler."""
    if sampler is None or is_called_per_generation(sampler):
        return shuffled if shuffle else lambda size, epoch, seed: in_order(size)

    def order(size: int, epoch: int, seed: int) -> list[int]:
        indices = call_sampler(sampler, {"size": size, "epoch": epoch, "seed": seed})
        if not 0 < len(indices) <= size:
            problem = f"the sampler '{sampler.part.name}' returned {len(indices)} indices for {size} examples"
            raise RecipeError(problem, where=WHERE, allowed=f"1 to {size} indices")
        if len(set(indices)) < len(indices):
            duplicate = next(index for index in indices if indices.count(index) > 1)
            problem = f"the sampler '{sampler.part.name}' returned index {duplicate} more than once in epoch {epoch}"
            hint = "examples may be left out; to repeat some, require `count`: called before every generation"
            allowed = "every index at most once in an epoch"
            raise RecipeError(problem, where=WHERE, allowed=allowed, hint=hint)
        return indices

    return order


def call_sampler(sampler: Bound, data: dict[str, int], step: int | None = None) -> list[int]:
    """Return the indices that a sampler selects, each checked."""
    with attribute_errors(sampler):
        indices: list[Any] = list(sampler.call({name: data[name] for name in sampler.part.data}, step))
    size = data["size"]
    for x in indices:
        if not hasattr(x, "__index__") or not 0 <= operator.index(x) < size:
            problem = f"the sampler '{sampler.part.name}' returned index {x!r} for {size} examples"
            raise RecipeError(problem, where=WHERE, allowed=f"whole numbers from 0 to {size - 1}")
    return list(map(operator.index, indices))


def is_called_per_generation(part: Bound) -> bool:
    """Return True for a sampler that is called before every generation."""
    return part.part.hook == "rlm_samplers" and "count" in part.part.data


class InOrder:
    """Prompts in the order of the epochs; the rest of one is dropped where it is shorter than a generation batch."""

    sampler: Bound | None = None

    def __init__(self, order: Callable[[int], Sequence[int]]) -> None:
        self._order = order
        self._epoch = self._position = 0
        self._indices: Sequence[int] | None = None

    def take(self, count: int, step: int = 0) -> list[int]:
        """Return the next `count` prompts of the epoch, or the first of the next one."""
        if self._indices is not None and self._position + count > len(self._indices):
            self._epoch, self._position, self._indices = self._epoch + 1, 0, None
        if self._indices is None:
            self._indices = self._order(self._epoch)
            require_full_generation(self._indices, count)
        start, self._position = self._position, self._position + count
        return list(self._indices[start : self._position])

    def state_dict(self) -> dict[str, int]:
        """Return epoch and position; the key "place" is part of the checkpoint format."""
        return {"epoch": self._epoch, "place": self._position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore the position of a checkpoint."""
        self._epoch, self._position, self._indices = state["epoch"], state["place"], None
        if self._position:
            self._indices = self._order(self._epoch)


class OnDemand:
    """Prompts that a sampler selects before every generation."""

    def __init__(self, sampler: Bound, size: int, seed: int) -> None:
        self.sampler: Bound | None = sampler
        self._size, self._seed = size, seed
        self._round = 0

    def take(self, count: int, step: int = 0) -> list[int]:
        """Return the sampler's selection for the next round; `step` is for its schedules."""
        data = {"size": self._size, "count": count, "draw": self._round, "seed": self._seed}
        assert self.sampler is not None
        indices = call_sampler(self.sampler, data, step)
        if len(indices) != count or len(set(indices)) != count:
            problem = f"the sampler '{self.sampler.part.name}' returned {len(set(indices))} different indices"
            raise RecipeError(problem, where=WHERE, allowed=f"{count} different indices, as `count` requires")
        self._round += 1
        return indices

    def state_dict(self) -> dict[str, int]:
        """Return the number of rounds; the key "draw" is part of the checkpoint format."""
        return {"draw": self._round}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore the number of rounds of a checkpoint."""
        self._round = state["draw"]


PromptSource = InOrder | OnDemand
"""Selects the prompts of each generation batch; resumable."""


def prompt_source_for(
    sampler: Bound | None, equation: Iterable[Bound], order: Order, *, size: int, seed: int
) -> PromptSource | None:
    """Return the prompt source of a stage; None where the data loader is sufficient."""
    if not reason([*([sampler] if sampler else []), *equation]):
        return None
    if sampler is not None and is_called_per_generation(sampler):
        return OnDemand(sampler, size, seed)
    return InOrder(lambda epoch: order(size, epoch, seed))


def reason(bounds: Iterable[Bound]) -> str:
    """Return a clause on why prompts are selected per generation batch; empty if the data loader selects them."""
    for bound in bounds:
        part = bound.part
        if bound.options.get("refill"):
            return f"the filter '{part.name}' refills the batch"
        if is_called_per_generation(bound):
            return f"the sampler '{part.name}' is called before every generation"
        if dynamic := {*part.data, *part.update_data} & {"prompt_index", "policy_drift"}:
            return f"'{part.name}' requires `{max(dynamic)}`"
    return ""
