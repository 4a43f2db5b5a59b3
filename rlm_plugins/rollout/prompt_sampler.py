"""The order in which problems reach the trainer: whole groups, repeated as TRL's buffer expects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from torch.utils.data import Sampler

from rlm_plugins.errors import RecipeError


def require_generation(order: Sequence[int], prompts: int) -> None:
    """Refuses an epoch that is too short for one generation.

    Raises:
        RecipeError: With both numbers.
    """
    if len(order) < prompts:
        problem = f"an epoch of {len(order)} problems is shorter than one generation, which takes {prompts}"
        hint = "let it choose more, or make the generation batch smaller"
        raise RecipeError(problem, where="algorithm.sampler", hint=hint)


class PromptSampler(Sampler[int]):
    """Indices of problems, each `generations` times in a row, each block of `prompts` repeated `repeats` times.

    The layout is that of TRL's `RepeatSampler`; the order of an epoch is a pure function of its number, so a
    resumed run meets the problems the interrupted one would have met.

    Args:
        order: Epoch → indices.
        size: Rows of the data set.
        prompts: Different problems per generation batch; a last, incomplete block is dropped.
        generations: Completions per problem.
        repeats: How often the trainer asks for the same block (buffered micro-batches × iterations).
    """

    def __init__(
        self, order: Callable[[int], Sequence[int]], *, size: int, prompts: int, generations: int, repeats: int
    ) -> None:
        self._order, self._size = order, size
        self._prompts, self._generations, self._repeats = prompts, generations, repeats
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the data loader before each epoch, also when a run is resumed in the middle."""
        self._epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = list(self._order(self._epoch))
        require_generation(order, self._prompts)
        for start in range(0, len(order) - self._prompts + 1, self._prompts):
            block = order[start : start + self._prompts]
            for _ in range(self._repeats):
                for index in block:
                    yield from [index] * self._generations

    def __len__(self) -> int:
        return self._size // self._prompts * self._prompts * self._generations * self._repeats
