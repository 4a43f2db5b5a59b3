"""The desk: hands out problems one generation at a time, where the data loader cannot know which come next.

It is asked before every generation and remembers where it stands, so that a resumed run goes on with the problem the
interrupted one would have met. Every process has its own, and all give the same answers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.prompt_sampler import require_generation

Order = Callable[[int, int, int], Sequence[int]]
"""(size, epoch, seed) → the order in which an epoch visits the problems."""


class PromptSource(Protocol):
    """Hands out problems, and can go on after a checkpoint.

    Attributes:
        sampler: Who is asked before every generation; None: nobody, epochs have an order.
    """

    sampler: Bound | None

    def take(self, count: int, step: int = 0) -> list[int]:
        """Row numbers of the next `count` problems, when `step` optimiser steps are done."""
        ...

    def state_dict(self) -> dict[str, int]: ...
    def load_state_dict(self, state: dict[str, int]) -> None: ...


class InOrder:
    """Problems in the order of the epochs, as the data loader would hand them out.

    Args:
        order: Epoch → indices. What is left of an epoch when it is shorter than a generation is dropped.
    """

    sampler: Bound | None = None

    def __init__(self, order: Callable[[int], Sequence[int]]) -> None:
        self._order = order
        self._epoch = self._place = 0
        self._now: Sequence[int] | None = None

    def take(self, count: int, step: int = 0) -> list[int]:
        """The next `count` problems of the epoch, or the first of the next one.

        Raises:
            RecipeError: An epoch is shorter than that.
        """
        if self._now is not None and self._place + count > len(self._now):
            self._epoch, self._place, self._now = self._epoch + 1, 0, None
        if self._now is None:
            self._now = self._order(self._epoch)
            require_generation(self._now, count)
        start, self._place = self._place, self._place + count
        return list(self._now[start : self._place])

    def state_dict(self) -> dict[str, int]:
        return {"epoch": self._epoch, "place": self._place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._epoch, self._place, self._now = state["epoch"], state["place"], None
        if self._place:
            self._now = self._order(self._epoch)


class OnDemand:
    """Problems a sampler chooses before every generation.

    Args:
        sampler: A part that names `count`.
        size: Rows of the data set.
        seed: Of the run.
    """

    def __init__(self, sampler: Bound, size: int, seed: int) -> None:
        self.sampler: Bound | None = sampler
        self._size, self._seed = size, seed
        self._draw = 0

    def take(self, count: int, step: int = 0) -> list[int]:
        """What the sampler chooses for the next draw; `step` is for its schedules.

        Raises:
            RecipeError: It chose another number of rows, one twice, or one that does not exist.
        """
        given = {"size": self._size, "count": count, "draw": self._draw, "seed": self._seed}
        assert self.sampler is not None
        chosen = _asked(self.sampler, given, step)
        if len(chosen) != count or len(set(chosen)) != count:
            problem = f"the sampler '{self.sampler.part.name}' chose {len(set(chosen))} different rows"
            raise RecipeError(problem, where="algorithm.sampler", allowed=f"the {count} it was asked for")
        self._draw += 1
        return chosen

    def state_dict(self) -> dict[str, int]:
        return {"draw": self._draw}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._draw = state["draw"]


def order_of(sampler: Bound | None, *, shuffle: bool = True) -> Order:
    """The order of an epoch, by the recipe's sampler.

    Args:
        sampler: None, or one that is asked before every generation: TRL's own order.
        shuffle: Whether that is a new one each epoch.
    """
    if sampler is None or asked_each_time(sampler):
        from rlm_plugins.functional.epoch_order import in_order, shuffled

        return shuffled if shuffle else lambda size, epoch, seed: in_order(size)

    def order(size: int, epoch: int, seed: int) -> list[int]:
        indices = _asked(sampler, {"size": size, "epoch": epoch, "seed": seed})
        if not 0 < len(indices) <= size:
            problem = f"the sampler '{sampler.part.name}' chose {len(indices)} rows of {size}"
            raise RecipeError(problem, where="algorithm.sampler", allowed=f"1 to {size} indices")
        if len(set(indices)) < len(indices):
            twice = next(row for row in indices if indices.count(row) > 1)
            problem = f"the sampler '{sampler.part.name}' chose row {twice} more than once in epoch {epoch}"
            hint = "rows may be left out; to meet some more often name `count`: asked before every generation"
            allowed = "every row at most once in an epoch"
            raise RecipeError(problem, where="algorithm.sampler", allowed=allowed, hint=hint)
        return indices

    return order


def _asked(sampler: Bound, given: dict[str, int], step: int | None = None) -> list[int]:
    from rlm_plugins.dispatch import attribute_errors

    with attribute_errors(sampler):
        found: list[Any] = list(sampler.call({name: given[name] for name in named(sampler)}, step))
    return [_row(sampler, i, given["size"]) for i in found]


def _row(sampler: Bound, number: Any, size: int) -> int:
    """What a sampler chose, as the number of a row."""
    if hasattr(number, "__index__") and 0 <= (row := operator.index(number)) < size:
        return row
    problem = f"the sampler '{sampler.part.name}' chose row {number!r} of {size}"
    raise RecipeError(problem, where="algorithm.sampler", allowed=f"whole numbers from 0 to {size - 1}")


def prompt_source_for(
    sampler: Bound | None, equation: Iterable[Bound], order: Order, *, size: int, seed: int
) -> PromptSource | None:
    """The desk a stage needs; None where the data loader can hand out the problems.

    Args:
        sampler: Of the recipe.
        equation: The parts of the equation.
        order: Of the epochs, where the sampler is not asked before every generation.
        size: Rows of the data set.
        seed: Of the run.
    """
    if not reason([*([sampler] if sampler else []), *equation]):
        return None
    if sampler is not None and asked_each_time(sampler):
        return OnDemand(sampler, size, seed)
    return InOrder(lambda epoch: order(size, epoch, seed))


def reason(parts: Iterable[Bound]) -> str:
    """Why problems are drawn one generation at a time, as a clause; empty: they need not be."""
    for part in parts:
        if part.beside.get("refill"):
            return f"the filter '{part.part.name}' refills the batch"
        if asked_each_time(part):
            return f"the sampler '{part.part.name}' is asked before every generation"
        words = {*named(part), *part.part.update_needs, *part.part.update_welcomes}
        if found := words & {"prompt_index", "policy_drift"}:
            return f"'{part.part.name}' asks for `{max(found)}`"
    return ""


def asked_each_time(part: Bound) -> bool:
    """Whether it is a sampler that is asked before every generation."""
    return part.part.hook == "rlm_samplers" and "count" in named(part)


def named(part: Bound) -> tuple[str, ...]:
    """The data a part asks for."""
    return (*part.part.needs, *part.part.welcomes)
