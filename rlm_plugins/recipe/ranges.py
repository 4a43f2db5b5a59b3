"""Numbers of a recipe: their ranges and order, and the sizes of a generation batch."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeGuard

from rlm_plugins.errors import RecipeError, either, expected
from rlm_plugins.recipe.paths import Path, format_path
from rlm_plugins.recipe.sections import SECTIONS
from rlm_plugins.specs import SLOTS


@dataclass(frozen=True)
class Range:
    """An interval of plausible values.

    Args:
        low, high: Its ends.
        above: True if `low` itself is excluded.
        below: True if `high` itself is excluded.
        also: A value outside it with a meaning of its own.
        reason: Why values outside are refused, where that is not obvious.
    """

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    below: bool = False
    also: float | None = None
    reason: str = ""

    def contains(self, value: float) -> bool:
        """Return True if a value is in the range; False for NaN."""
        from_low = value > self.low if self.above else value >= self.low
        to_high = value < self.high if self.below else value <= self.high
        return value == self.also or (from_low and to_high)

    def limit_text(self, value: float) -> str:
        """Return the limit that a value violates, as a phrase.

        >>> Range(0, 1, below=True).limit_text(1.5), Range(1, also=-1).limit_text(-5)
        ('less than 1', '-1, or 1 or more')
        """
        if math.isnan(value):
            return "a finite number"
        if value > self.high or (self.below and value == self.high):
            return f"less than {_text(self.high)}" if self.below else f"{_text(self.high)} or less"
        low = f"more than {_text(self.low)}" if self.above else f"{_text(self.low)} or more"
        return f"{self.also:g}, or {low}" if self.also is not None else low


def _text(number: float) -> str:
    return f"{number:,.0f}" if 1e6 <= abs(number) < 1e15 and number % 1 == 0 else f"{number:g}"


_COUNT = Range(1, 1_000_000)
_SEED = Range(0, 2**32 - 1, reason="NumPy takes seeds of 32 bits")
_AVERAGE = Range(0, 1, below=True, reason="an average over past gradients with this decay never converges at 1 or more")
_RATIO = Range(0, 1e4, reason="ratios this far from 1 do not occur; `null` or a large value in the range turns it off")
_INTEGER = Range(-1e12, 1e12, reason="no count or size is that large")
_FLOAT = Range(-3e38, 3e38, reason="it does not fit into float32")
"""The ranges of every other number."""

RANGES: dict[str, Range] = {
    "learning_rate": Range(0, 100, reason="the weights would diverge in the first step"),
    "adam_beta1": _AVERAGE,
    "adam_beta2": _AVERAGE,
    "max_grad_norm": Range(0),
    "max_steps": Range(1, 1_000_000_000, also=-1, reason="-1: `num_train_epochs` counts"),
    "num_train_epochs": Range(0, 1_000_000, above=True),
    "per_device_train_batch_size": _COUNT,
    "gradient_accumulation_steps": _COUNT,
    "steps_per_generation": _COUNT,
    "generation_batch_size": Range(1, 100_000_000),
    "num_generations": _COUNT,
    "num_iterations": _COUNT,
    "save_steps": Range(0, 1_000_000_000, above=True, reason="below 1 it is a share of all steps"),
    "max_completion_length": Range(1, 10_000_000),
    "temperature": Range(0, 100, above=True, reason="tokens would be drawn almost uniformly from the whole vocabulary"),
    "top_p": Range(0, 1, above=True),
    "r": Range(1, 16_384, reason="a rank above the width of the model adds nothing"),
    "lora_dropout": Range(0, 1, below=True, reason="at 1 the adapter has no gradient"),
    "seed": _SEED,
    "data_seed": _SEED,
    "beta": Range(-1e4, 1e4, reason="the loss would be this term alone"),
    "epsilon": _RATIO,
    "epsilon_low": _RATIO,
    "epsilon_high": Range(-1, 1e4, above=True, reason=f"{_RATIO.reason}; below 0 it is a cap of `cispo` below 1"),
    "train_rows": Range(1, 10_000_000, reason="examples are generated in memory"),
}
"""Key of a recipe → its range, wherever the key stands: field of TRL or PEFT, or knob of a part.

Only values with which a run trains, hangs or fails late, and that somebody wrote: TRL and PEFT check the rest.
"""


def problem(key: str, value: object) -> tuple[str, str]:
    """Return the problem of a value, and a hint; both are empty if it is in its range or not a number."""
    limits = RANGES.get(key, _INTEGER if isinstance(value, int) else _FLOAT)
    if not is_number(value) or limits.contains(value):
        return "", ""
    return expected(limits.limit_text(value), value), limits.reason


def is_number(value: object) -> TypeGuard[float]:
    """Return True for an integer or a float, False for a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


_SECTIONS = {*SECTIONS, *SLOTS, "lora", "generation_kwargs"}
ORDERED = (
    ("low", "high"),
    ("lowest", "highest"),
    ("minimum", "maximum"),
    ("min_decay", "max_decay"),
    ("min_digits", "digits"),
    ("min_carries", "max_carries"),
)
"""Pairs of knobs of one part of which the first is not larger than the second."""


def check_values(body: Mapping[str, Any], stage_path: Path) -> None:
    """Check every number of a resolved stage.

    Args:
        body: The stage as plain data, defaults included.
        stage_path: Its address in the recipe.

    Raises:
        RecipeError: The first number that is out of range.
    """
    for path, keyed in _mappings(body, stage_path):
        for key, value in keyed.items():
            for inner_path, number in _numbers(value, (*path, key)):
                text, hint = problem(key, number)
                if text:
                    raise RecipeError(text, where=format_path(inner_path), hint=hint)
        for first, second in ORDERED:
            low, high = keyed.get(first), keyed.get(second)
            if is_number(low) and is_number(high) and low > high:
                allowed = f"`{first}` not larger than `{second}`"
                raise RecipeError(f"expected {allowed}, got {low} and {high}", where=format_path((*path, first)))


def _mappings(body: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield sections, parts and the adapter; not the values of knobs, whose keys are labels of the user."""
    yield path, body
    for key, value in body.items():
        entries = enumerate(value) if isinstance(value, list) else [(None, value)]
        for number, inner in entries if key in _SECTIONS else ():
            if isinstance(inner, Mapping):
                yield from _mappings(inner, (*path, key) if number is None else (*path, key, number))


def _numbers(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield a number, those of a list, or the ends of a schedule."""
    if isinstance(value, list):
        yield from (((*path, number), inner) for number, inner in enumerate(value))
    elif isinstance(value, Mapping):
        yield from (((*path, end), value[end]) for end in ("from", "to") if end in value)
    else:
        yield path, value


MAX_DISTANCE = 10_000
"""Largest distance of a suggested group size from the wrong one."""


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
        """Check that it consists of whole groups and whole micro-batches.

        Raises:
            RecipeError: It names the factors, and the nearest numbers that fit.
        """
        step = self.micro_batch * self.processes
        if self.completions % step:
            sizes = self._multiples(step)
            raise RecipeError(
                f"{self.completions} completions cannot be split into micro-batches of per_device_train_batch_size "
                f"{self.micro_batch} × {self.processes} process(es)",
                where=f"{where}.generation_batch_size",
                allowed=either(list(map(str, sizes))),
            )
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
        """Return the group sizes that divide the batch: the two nearest below the present one and the two above."""
        top = min(self.group - 1, self.completions)
        below = range(top, max(1, top - MAX_DISTANCE), -1)
        above = range(self.group + 1, min(self.completions, self.group + MAX_DISTANCE) + 1)
        return sorted([*islice(filter(self._divides, below), 2), *islice(filter(self._divides, above), 2)])

    def _divides(self, size: int) -> bool:
        return self.completions % size == 0

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
        processes=int(os.environ.get("WORLD_SIZE", "1")),
        micro_batches=settings[key],
        group=settings["num_generations"],
        micro_batches_key=key,
        size=settings.get("generation_batch_size"),
    )
