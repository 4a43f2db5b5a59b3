"""Order in which prompts reach the trainer: whole groups, repeated as TRL's buffer requires."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils.data import Sampler

from rlm_plugins.dispatch import attribute_errors
from rlm_plugins.errors import RecipeError
from rlm_plugins.functional.epoch_order import in_order, shuffled
from rlm_plugins.registry.part import Bound

WHERE = "algorithm.sampler"
Order = Callable[[int, int, int], Sequence[int]]
"""(size, epoch, seed) → the order of the prompts in an epoch."""


def require_full_generation(order: Sequence[int], prompts: int) -> None:
    """Check that an epoch is long enough for one generation batch.

    Raises:
        RecipeError: With both numbers.
    """
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
    """Return the order of an epoch, by the recipe's sampler.

    Args:
        sampler: None, or one that is called before every generation, gives TRL's order.
        shuffle: True for TRL's random order, False for that of the data set.
    """
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
    """Return the indices that a sampler selects, each checked.

    Args:
        sampler: The part.
        data: Names that it may require.
        step: Optimizer step, for its schedules.

    Raises:
        RecipeError: An index is out of range.
    """
    with attribute_errors(sampler):
        indices: list[Any] = list(sampler.call({name: data[name] for name in sampler.part.data}, step))
    return [_index(sampler, x, data["size"]) for x in indices]


def _index(sampler: Bound, x: Any, size: int) -> int:
    """Return what a sampler selected as an index of the data set."""
    if hasattr(x, "__index__") and 0 <= operator.index(x) < size:
        return operator.index(x)
    problem = f"the sampler '{sampler.part.name}' returned index {x!r} for {size} examples"
    raise RecipeError(problem, where=WHERE, allowed=f"whole numbers from 0 to {size - 1}")


def is_called_per_generation(part: Bound) -> bool:
    """Return True for a sampler that is called before every generation."""
    return part.part.hook == "rlm_samplers" and "count" in part.part.data
