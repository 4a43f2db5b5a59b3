"""The arithmetic of a stage: rows, micro-batches, generations, optimiser steps, epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rlm_plugins.recipe.batch_arithmetic import Generation, generation


@dataclass(frozen=True)
class Schedule:
    """What a trainer will do, as transformers and TRL count it.

    Args:
        micro_batch: Rows of one backward pass of one process.
        processes: Processes that train together.
        accumulation: Micro-batches per process in one optimiser step.
        problems: Rows of the training data; None: a stream, whose end nobody knows.
        epochs: Passes over them that are wanted (``num_train_epochs``).
        max_steps: Optimiser steps that are wanted; 0 or less: as many as `epochs` come to.
        generation: Completions written at once; None: nothing is written, the data are learned from.
        pieces: Micro-batches per process that one generation is cut into.
        passes: How often each generation is learned from (``num_iterations``).
        target_kl: Where the policy has moved so far, the optimiser steps left on a generation are passed over.
    """

    micro_batch: int
    processes: int
    accumulation: int
    problems: int | None
    epochs: float
    max_steps: int
    generation: Generation | None = None
    pieces: int = 1
    passes: int = 1
    target_kl: float | None = None

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimiser steps of one pass over the data; an incomplete generation at its end is dropped."""
        if self.problems is None:
            return None
        if self.generation is None:
            micro_batches = math.ceil(self.problems / (self.micro_batch * self.processes))
        else:
            micro_batches = self.problems // self.generation.problems * self.pieces * self.passes
        return max(math.ceil(micro_batches / self.accumulation), 1)

    @property
    def steps(self) -> int | None:
        """Optimiser steps of the whole stage; None when nothing bounds it."""
        if self.max_steps > 0:
            return self.max_steps
        return None if self.steps_per_epoch is None else math.ceil(self.epochs * self.steps_per_epoch)

    @property
    def steps_per_generation(self) -> Fraction:
        """Optimiser steps that one generation serves."""
        return Fraction(self.pieces * self.passes, self.accumulation)

    def words(self) -> list[str]:
        """The arithmetic, one line per thought.

        >>> plan = Generation(16, 1, 4, 8, "gradient_accumulation_steps")
        >>> for line in Schedule(16, 1, 4, 1000, 1.0, 0, plan, pieces=4).words()[1:]: print(line)
        64 completions = 4 micro-batches of 16 = 1 optimiser step
        125 optimiser steps = 125 generations = 1000 problems: 1 epoch of 1000
        """
        return [*(self._learned() if self.generation is None else self._written(self.generation)), self._whole()]

    def _learned(self) -> list[str]:
        rows = self.micro_batch * self.processes * self.accumulation
        across = f" × {_count(self.processes, 'process')}" if self.processes > 1 else ""
        return [
            f"{_count(self.accumulation, 'micro-batch')} of {self.micro_batch}{across} = {rows} rows per optimiser step"
        ]

    def _written(self, plan: Generation) -> list[str]:
        across = f" on each of {self.processes} processes" if self.processes > 1 else ""
        again = f", learned from {self.passes} times" if self.passes > 1 else ""
        micro = f"{_count(self.pieces, 'micro-batch')} of {self.micro_batch}{across}{again}"
        fewer = f", or fewer (target_kl {self.target_kl:g})" if self.target_kl is not None else ""
        return [
            str(plan),
            f"{plan.completions} completions = {micro} = {_count(self.steps_per_generation, 'optimiser step')}{fewer}",
        ]

    def _whole(self) -> str:
        steps = self.steps
        if steps is None:
            return "no end: the data are a stream; set `max_steps`"
        if self.generation is None:
            seen, told = steps * self.micro_batch * self.processes * self.accumulation, ""
        else:
            times = math.ceil(steps / self.steps_per_generation)
            seen, told = times * self.generation.problems, f"{_count(times, 'generation')} = "
        total = "" if self.steps_per_epoch is None else f": {_epochs(steps / self.steps_per_epoch)} of {self.problems}"
        return f"{_count(steps, 'optimiser step')} = {told}{_count(seen, 'problem')}{total}"


def schedule(args: Any, problems: int | None, said: Mapping[str, Any]) -> Schedule:
    """The schedule of an engine's config.

    Args:
        args: A ``transformers.TrainingArguments``, or what TRL made of it.
        problems: Rows of the training data, if they can be counted.
        said: What the recipe says under ``trainer:``.
    """
    ours = ("generation_batch_size", "steps_per_generation")  # TRL fills in both: only one of them was said
    plan = generation({**vars(args), **{key: said.get(key) for key in ours}})
    return Schedule(
        micro_batch=args.per_device_train_batch_size,
        processes=args.world_size,
        accumulation=args.gradient_accumulation_steps,
        problems=problems,
        epochs=args.num_train_epochs,
        max_steps=args.max_steps,
        generation=plan,
        pieces=args.steps_per_generation if plan else 1,
        passes=args.num_iterations if plan else 1,
        target_kl=getattr(args, "target_kl", None),
    )


def _count(number: float | Fraction, thing: str) -> str:
    """``1 optimiser step``, ``4 micro-batches``, ``1/4 optimiser step``."""
    many = f"{thing}es" if thing.endswith(("ch", "s")) else f"{thing}s"
    return f"{number} {many if number > 1 else thing}"


def _epochs(number: float) -> str:
    return f"{number:.3g} epoch{'' if number == 1 else 's'}"
