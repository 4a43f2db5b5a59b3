"""Ranges of settings under `trainer:` and `lora:`, and the sizes of a generation batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from rlm_plugins.errors import RecipeError, either
from rlm_plugins.workers.distributed import num_launched

_COUNT = Annotated[int, Field(ge=1, le=1_000_000)]
_BELOW_ONE = Annotated[float, Field(ge=0, lt=1)]
RANGES: dict[str, Any] = {
    "learning_rate": Annotated[float, Field(ge=0, le=100)],
    "adam_beta1": _BELOW_ONE,
    "adam_beta2": _BELOW_ONE,
    "max_steps": Annotated[int, Field(ge=1)] | Literal[-1],
    "num_train_epochs": Annotated[float, Field(gt=0)],
    "per_device_train_batch_size": _COUNT,
    "gradient_accumulation_steps": _COUNT,
    "steps_per_generation": _COUNT | None,
    "generation_batch_size": Annotated[int, Field(ge=1, le=100_000_000)] | None,
    "num_generations": _COUNT,
    "num_iterations": _COUNT,
    "max_completion_length": Annotated[int, Field(ge=1)],
    "temperature": Annotated[float, Field(gt=0, le=100)],
    "top_p": Annotated[float, Field(gt=0, le=1)],
    "seed": Annotated[int, Field(ge=0, lt=2**32)],
    "r": Annotated[int, Field(ge=1, le=16_384)],
    "lora_dropout": _BELOW_ONE,
}
"""Field of TRL or PEFT → its type here: a value outside trains nothing, hangs, or fails after the weights load."""

MAX_GROUP = 10_000
"""Largest suggested group size."""


@dataclass(frozen=True)
class Generation:
    """A generation batch: completions generated at once, before any of them is trained on. All numbers are at least 1.

    Args:
        micro_batch: Completions per process and backward pass (``per_device_train_batch_size``).
        processes: World size.
        micro_batches: Micro-batches per process of one generation batch.
        group: Completions per prompt (``num_generations``).
        micro_batches_key: The setting that determines `micro_batches`.
        size: ``generation_batch_size``, if the recipe sets it.
    """

    micro_batch: int
    processes: int
    micro_batches: int
    group: int
    micro_batches_key: str
    size: int | None = None

    @property
    def completions(self) -> int:
        """Completions of one generation batch, over all processes."""
        return self.size or self.micro_batch * self.processes * self.micro_batches

    @property
    def prompts(self) -> int:
        """Prompts of one generation batch."""
        return self.completions // self.group

    def __str__(self) -> str:
        """Return it as text, for ``rlm check``.

        >>> print(Generation(8, 1, 4, 8, "steps_per_generation"))
        4 prompts × 8 = 32 completions (per_device_train_batch_size 8 × steps_per_generation 4 × 1 process)
        """
        return f"{self.prompts} prompts × {self.group} = {self.completions} completions ({self._product})"

    @property
    def _product(self) -> str:
        if self.size:
            return f"generation_batch_size {self.size}"
        processes = f"{self.processes} process{'es' if self.processes > 1 else ''}"
        micro_batches = f"{self.micro_batches_key} {self.micro_batches}"
        return f"per_device_train_batch_size {self.micro_batch} × {micro_batches} × {processes}"

    def check(self, where: str) -> None:
        """Check that it consists of whole groups; TRL checks that it consists of whole micro-batches."""
        step = self.micro_batch * self.processes
        if self.completions % self.group:
            group_sizes = [str(size) for size in self._divisors()]
            raise RecipeError(
                f"a generation batch requires whole groups of num_generations {self.group}, which "
                f"{self.completions} completions ({self._product}) are not",
                where=f"{where}.num_generations",
                allowed=f"num_generations {either(group_sizes)}" if group_sizes else "",
                hint=f"or keep it, and set {self._remedy(math.lcm(step, self.group))}",
            )

    def _multiples(self, step: int) -> list[int]:
        below = self.completions // step * step
        return [n for n in (below, below + step) if n]

    def _divisors(self) -> list[int]:
        """Return up to four group sizes that divide the batch, near the present one."""
        sizes = [n for n in range(2, min(self.completions, MAX_GROUP) + 1) if self.completions % n == 0]
        return sorted(sorted(sizes, key=lambda n: abs(n - self.group))[:4])

    def _remedy(self, unit: int) -> str:
        if self.size:
            return f"generation_batch_size: {either(list(map(str, self._multiples(unit))))}"
        step = self.micro_batch * self.processes
        return f"{self.micro_batches_key}: {either([str(n // step) for n in self._multiples(unit)])}"


def generation(settings: Mapping[str, Any]) -> Generation | None:
    """Return the generation batch of `settings` (defaults included); None for a trainer that generates nothing."""
    if settings.get("num_generations") is None:
        return None
    key = "steps_per_generation" if settings.get("steps_per_generation") else "gradient_accumulation_steps"
    return Generation(
        micro_batch=settings["per_device_train_batch_size"],
        processes=num_launched(),
        micro_batches=settings[key],
        group=settings["num_generations"],
        micro_batches_key=key,
        size=settings.get("generation_batch_size"),
    )
