"""Prompt sources: they select the prompts of each generation batch when the selection depends on training.

Dynamic sampling and curricula need one, because a data loader cannot foresee their prompts. A source is stateful, so a
resumed run continues with the interrupted one's prompts; every process has its own, and all select the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.prompt_sampler import (
    WHERE,
    Order,
    call_sampler,
    is_called_per_generation,
    require_full_generation,
)


class PromptSource(Protocol):
    """Selects the prompts of each generation batch; resumable.

    Attributes:
        sampler: The sampler that is called before every generation; None: epochs have a fixed order.
    """

    sampler: Bound | None

    def take(self, count: int, step: int = 0) -> list[int]:
        """Return the indices of the next `count` prompts, after `step` optimizer steps."""
        ...

    def state_dict(self) -> dict[str, int]:
        """Return the position as plain numbers."""
        ...

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore the position of a checkpoint."""
        ...


class InOrder:
    """Prompts in the order of the epochs, as the data loader yields them.

    Args:
        order: Epoch → indices. The rest of an epoch is dropped where it is shorter than a generation batch.
    """

    sampler: Bound | None = None

    def __init__(self, order: Callable[[int], Sequence[int]]) -> None:
        self._order = order
        self._epoch = self._position = 0
        self._indices: Sequence[int] | None = None

    def take(self, count: int, step: int = 0) -> list[int]:
        """Return the next `count` prompts of the epoch, or the first of the next one.

        Raises:
            RecipeError: An epoch is shorter than that.
        """
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
    """Prompts that a sampler selects before every generation.

    Args:
        sampler: A part that requires `count`.
        size: Number of examples in the data set.
        seed: Of the run.
    """

    def __init__(self, sampler: Bound, size: int, seed: int) -> None:
        self.sampler: Bound | None = sampler
        self._size, self._seed = size, seed
        self._round = 0

    def take(self, count: int, step: int = 0) -> list[int]:
        """Return the sampler's selection for the next round; `step` is for its schedules.

        Raises:
            RecipeError: It is of another length, has duplicates, or indices out of range.
        """
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


def prompt_source_for(
    sampler: Bound | None, equation: Iterable[Bound], order: Order, *, size: int, seed: int
) -> PromptSource | None:
    """Return the prompt source of a stage; None where the data loader is sufficient.

    Args:
        sampler: Of the recipe.
        equation: The parts of the equation.
        order: Of the epochs, where the sampler is not called before every generation.
        size: Number of examples in the data set.
        seed: Of the run.
    """
    if not reason([*([sampler] if sampler else []), *equation]):
        return None
    if sampler is not None and is_called_per_generation(sampler):
        return OnDemand(sampler, size, seed)
    return InOrder(lambda epoch: order(size, epoch, seed))


def reason(parts: Iterable[Bound]) -> str:
    """Return a clause on why prompts are selected per generation batch; empty if the data loader selects them."""
    for part in parts:
        if part.options.get("refill"):
            return f"the filter '{part.part.name}' refills the batch"
        if is_called_per_generation(part):
            return f"the sampler '{part.part.name}' is called before every generation"
        names = {*part.part.data, *part.part.update_data}
        if dynamic := names & {"prompt_index", "policy_drift"}:
            return f"'{part.part.name}' requires `{max(dynamic)}`"
    return ""
