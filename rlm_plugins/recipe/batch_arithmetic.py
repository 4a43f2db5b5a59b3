"""Sizes of a generation batch: prompts, completions per prompt, micro-batches."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.messages import either

FAR = 10_000
"""Largest distance of a suggested group size from the wrong one."""


@dataclass(frozen=True)
class Generation:
    """A generation batch: completions generated at once, before any of them is trained on. All numbers are at least 1.

    Args:
        micro_batch: Completions per process and backward pass (``per_device_train_batch_size``).
        processes: World size.
        pieces: Micro-batches per process of one generation batch.
        group: Completions per prompt (``num_generations``).
        pieces_key: The setting with the number of pieces.
        size: ``generation_batch_size``, if the recipe sets it.
    """

    micro_batch: int
    processes: int
    pieces: int
    group: int
    pieces_key: str
    size: int | None = None

    @property
    def completions(self) -> int:
        """Completions of one generation batch, over all processes."""
        return self.size or self.micro_batch * self.processes * self.pieces

    @property
    def problems(self) -> int:
        """Prompts of one generation batch."""
        return self.completions // self.group

    def __str__(self) -> str:
        """Return it as text, for ``rlm check``.

        >>> print(Generation(8, 1, 4, 8, "steps_per_generation"))
        4 prompts × 8 = 32 completions (per_device_train_batch_size 8 × steps_per_generation 4 × 1 process)
        """
        return f"{self.problems} prompts × {self.group} = {self.completions} completions ({self._product})"

    @property
    def _product(self) -> str:
        if self.size:
            return f"generation_batch_size {self.size}"
        processes = f"{self.processes} process{'es' if self.processes > 1 else ''}"
        return f"per_device_train_batch_size {self.micro_batch} × {self.pieces_key} {self.pieces} × {processes}"

    def check(self, where: str) -> None:
        """Check that it consists of whole groups and whole micro-batches.

        Raises:
            RecipeError: It names the factors, and the nearest numbers that fit.
        """
        step = self.micro_batch * self.processes
        if self.completions % step:
            good = self._multiples(step)
            raise RecipeError(
                f"{self.completions} completions cannot be split into micro-batches of per_device_train_batch_size "
                f"{self.micro_batch} × {self.processes} process(es)",
                where=f"{where}.generation_batch_size",
                allowed=either(list(map(str, good))),
            )
        if self.completions % self.group:
            raise RecipeError(
                f"a generation batch requires whole groups of num_generations {self.group}, which "
                f"{self.completions} completions ({self._product}) are not",
                where=f"{where}.num_generations",
                allowed=f"num_generations {either(list(map(str, fitting)))}" if (fitting := self._divisors()) else "",
                hint=f"or keep it, and set {self._remedy(math.lcm(step, self.group))}",
            )

    def _multiples(self, step: int) -> list[int]:
        below = self.completions // step * step
        return [n for n in (below, below + step) if n]

    def _divisors(self) -> list[int]:
        """Return the group sizes that fit: the two nearest below the wrong one, and the two nearest above."""
        top = min(self.group - 1, self.completions)
        below = range(top, max(1, top - FAR), -1)
        above = range(self.group + 1, min(self.completions, self.group + FAR) + 1)
        nearest = (islice((n for n in side if self.completions % n == 0), 2) for side in (below, above))
        return sorted(chain(*nearest))

    def _remedy(self, whole: int) -> str:
        if self.size:
            return f"generation_batch_size: {either(list(map(str, self._multiples(whole))))}"
        step = self.micro_batch * self.processes
        return f"{self.pieces_key}: {either([str(n // step) for n in self._multiples(whole)])}"


def generation(settings: Mapping[str, Any]) -> Generation | None:
    """Return the generation batch of `settings` (defaults included); None for a trainer that generates nothing."""
    if settings.get("num_generations") is None:
        return None
    key = "steps_per_generation" if settings.get("steps_per_generation") else "gradient_accumulation_steps"
    return Generation(
        micro_batch=settings["per_device_train_batch_size"],
        processes=int(os.environ.get("WORLD_SIZE", "1")),
        pieces=settings[key],
        group=settings["num_generations"],
        pieces_key=key,
        size=settings.get("generation_batch_size"),
    )


def check_updates(settings: Mapping[str, Any], plan: Generation, where: str) -> None:
    """Check that a `target_kl` has updates to skip.

    Args:
        settings: Settings, defaults included.
        plan: Their generation batch.
        where: Their address in the recipe.

    Raises:
        RecipeError: There is one update per generation batch, or an update spans two.
    """
    if settings.get("target_kl") is None:
        return
    pieces = plan.completions // (plan.micro_batch * plan.processes) * settings["num_iterations"]
    updates, rest = divmod(pieces, settings["gradient_accumulation_steps"])
    if rest or updates < 2:
        raise RecipeError(
            f"it skips the remaining updates on a generation batch, and there is only one: {pieces} micro-batches, of "
            f"which an update takes {settings['gradient_accumulation_steps']}",
            where=f"{where}.target_kl",
            allowed="two or more whole updates per generation batch",
            hint="`num_iterations: 2` uses each completion twice; `steps_per_generation` splits a generation batch",
        )
