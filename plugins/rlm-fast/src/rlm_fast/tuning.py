"""Choice of kernels and sizes by measurement, on the machine where a run starts.

A choice is a constant of a module whose best value depends on the processor. No value changes more than rounding. The
candidates are timed on a small workload; the default is kept unless another is clearly faster. A run records the values
in its manifest, and a resumed run uses those. Importable without torch.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

NEVER = 2**40
"""Threshold that is never reached."""
SECONDS, ROUNDS = 0.05, 3
"""Time for a choice, and the least repetitions of each candidate; the shortest counts."""
GAIN = 0.03
"""Share of the time that a candidate must save to replace the default."""


@dataclass(frozen=True)
class Choice:
    """A constant of a module that is chosen by measurement.

    Args:
        key: Its name in the manifest.
        constant: ``module:NAME``.
        candidates: Values to compare with the default, which the module defines.
        workload: ``module:function``; the function returns a call that is timed, built anew for each value.
        text: Its meaning, which the value follows.
    """

    key: str
    constant: str
    candidates: tuple[int, ...]
    workload: str
    text: str

    @property
    def value(self) -> int:
        """The value in use."""
        module, _, name = self.constant.partition(":")
        return int(getattr(importlib.import_module(module), name))

    def set(self, value: int) -> None:
        """Use another value from now on."""
        module, _, name = self.constant.partition(":")
        setattr(importlib.import_module(module), name, value)

    def describe(self, value: int) -> str:
        """Return the meaning of a value."""
        return f"{self.text} {'never' if value == NEVER else f'{value:,}'}"


_KERNELS, _WORKLOADS = "rlm_fast", "rlm_fast.tuning_workloads"
CHOICES: dict[str, Choice] = {}
"""All choices by key; a plugin adds its own with `register`."""


def register(*choices: Choice) -> None:
    """Add choices."""
    CHOICES.update({choice.key: choice for choice in choices})


register(
    Choice(
        "onednn_tokens",
        f"{_KERNELS}.cpu_linear:MIN_TOKENS",
        (8, 16, 32, 128, NEVER),
        f"{_WORKLOADS}:thin_products",
        "tokens from which oneDNN is used:",
    ),
    Choice(
        "swapped_tokens",
        f"{_KERNELS}.cpu_linear:MAX_SWAPPED",
        (0, 32, 96, 192),
        f"{_WORKLOADS}:products_of_few",
        "tokens below which a product is transposed:",
    ),
    Choice(
        "packed_weight",
        f"{_KERNELS}.cpu_linear:MIN_WEIGHT",
        (2**15, 2**19, NEVER),
        f"{_WORKLOADS}:packed_products",
        "numbers of a weight from which it is packed:",
    ),
    Choice(
        "head_logits",
        f"{_KERNELS}.chunk_sizes:LOGITS",
        (2**18, 2**19, 2**20),
        f"{_WORKLOADS}:logprob_head",
        "logits at a time:",
    ),
    Choice(
        "attention_pairs",
        f"{_KERNELS}.chunk_sizes:PAIRS",
        (2**8, 2**10, 2**14, 2**16),
        f"{_WORKLOADS}:tree_attention",
        "masked pairs up to which attention calls are joined:",
    ),
    Choice(
        "merged_products",
        f"{_KERNELS}.chunk_sizes:PRODUCTS",
        (2**28, 2**29),
        f"{_WORKLOADS}:small_micro_batches",
        "products up to which micro-batches are merged:",
    ),
)


def measure() -> dict[str, int]:
    """Return the fastest value of each choice, by key, in a fraction of a second; all values stay as they are."""
    return {key: _fastest(choice) for key, choice in CHOICES.items()}


def _fastest(choice: Choice) -> int:
    import torch

    # CPU time of this thread: other processes may share the cores.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    default, workloads = choice.value, {}
    try:
        for value in (default, *choice.candidates):
            choice.set(value)
            workloads[value] = _resolve(choice.workload)()
        seconds = dict.fromkeys(workloads, float("inf"))
        end, rounds = time.perf_counter() + SECONDS, 0
        while rounds < ROUNDS or time.perf_counter() < end:
            for value, workload in workloads.items():
                choice.set(value)
                start = clock()
                workload()
                seconds[value] = min(seconds[value], clock() - start)
            rounds += 1
    finally:
        choice.set(default)
    fastest = min(seconds, key=seconds.__getitem__)
    return fastest if seconds[fastest] < (1 - GAIN) * seconds[default] else default


@contextlib.contextmanager
def applied(values: Mapping[str, int]) -> Iterator[None]:
    """Use these values inside the context; a key that no choice has is ignored."""
    original = {key: choice.value for key, choice in CHOICES.items() if key in values}
    try:
        for key in original:
            CHOICES[key].set(values[key])
        yield
    finally:
        for key, value in original.items():
            CHOICES[key].set(value)


def _resolve(path: str) -> Any:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
