"""A lower bound for the time of a step: the unavoidable matrix products, at the machine's measured rate.

A step needs a forward pass over every prompt once, and over every token of an informative completion. What all prompts
start with is computed once. That is 2 N operations per token for N frozen parameters; a backward pass takes 2 N more
(6 per adapter parameter in both). Logits of each token are two products, and decoding is sequential. Attention, norms,
sampling and Python count as free. Completions that start alike could share a little more.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import fmean

import torch
from rlm_fast.linear_layers import PackedLinear
from speed_meter import Group
from speed_workloads import SIZES, Workload
from speed_world import LORA, model

from rlm_plugins.run.manifest import processor

READ = 2**26
"""Bytes read to measure memory bandwidth: larger than the caches."""


@dataclass(frozen=True)
class Machine:
    """A processor and its throughput per core, per second.

    Args:
        name: Name of the processor.
        date: Day of the measurement.
        products: Operations in products of large matrices.
        thin: The same with few rows in one matrix, as in decoding.
        read: Bytes read from memory.
        half: Operations in products of large matrices in bfloat16.
    """

    name: str
    date: str
    products: float
    thin: float
    read: float
    half: float = 0.0


def probe(threads: int = 1) -> Machine:
    """Measure a core of this machine, with both of its matrix libraries.

    Args:
        threads: Cores that do the same at once, each with a product of its own. They share caches, memory and clock
            rate, as the threads of one product do; but no core waits for another, so the limit is the machine's.
    """
    torch.set_num_threads(1)
    best = partial(_best, threads=threads)
    square, thin = torch.randn(1024, 1024), torch.randn(16, 1024)
    half = square.bfloat16()
    memory, laid = torch.ones(READ // 4), PackedLinear(square, None)
    return Machine(
        name=processor(),
        date=datetime.date.today().isoformat(),
        products=2 * 1024**3 / min(best(lambda: square @ square), best(lambda: laid(square))),
        thin=2 * 16 * 1024**2 / min(best(lambda: thin @ square), best(lambda: laid(thin))),
        read=READ / best(memory.sum),
        half=2 * 1024**3 / best(lambda: half @ half),
    )


def _best(work: Callable[[], object], threads: int, times: int = 20) -> float:
    """Return the CPU seconds of a call: the least of `times`, and the mean over threads that call it at once."""

    def of_thread(_: int) -> float:
        torch.set_num_threads(1)
        seconds = []
        for _ in range(times):
            began = time.thread_time()
            work()
            seconds.append(time.thread_time() - began)
        return min(seconds)

    with ThreadPoolExecutor(threads) as pool:
        return fmean(pool.map(of_thread, range(threads)))


def least(workload: Workload, groups: Sequence[Group], machine: Machine) -> dict[str, float]:
    """Return the lower bound in seconds of a run, as ``writing``, ``scoring`` and ``learning``.

    Args:
        workload: The workload.
        groups: The generated groups, as in `speed_meter.Run`.
        machine: The throughput.
    """
    body, adapter, head = _weights(workload)
    learned = [group for group in groups if group[2] or workload.beta]  # a KL needs every completion
    tokens, scored = _tokens(learned, workload)
    learning = workload.iterations * ((4 * body + 6 * adapter) * tokens + 4 * head * scored) / machine.products
    tokens, written = _tokens(groups, workload)
    scoring = (2 * body * tokens + 2 * head * written) / machine.products if workload.beta else 0.0
    together = _together(workload)
    prompts = sum(prompt for prompt, _, _ in groups) - _shared(len(groups), workload)
    longest = sum(max(rows) for _, rows, _ in groups) / together
    decoding = max(4 * (body + head) * longest / machine.read, 2 * (body + head) * written / machine.thin)
    writing = 0.0 if workload.canned else 2 * body * prompts / machine.products + decoding
    return {"writing": writing, "scoring": scoring, "learning": learning}


def _together(workload: Workload) -> int:
    """Return the groups that are decoded together."""
    return max(1, workload.rows * workload.accumulation // workload.generations)


def _shared(groups: int, workload: Workload) -> float:
    """Return the tokens saved because all prompts of a step start alike."""
    return workload.common * groups * (1 - 1 / _together(workload))


def _tokens(groups: Sequence[Group], workload: Workload) -> tuple[float, int]:
    """Return the tokens of forward passes (a prompt once), and the tokens with logits."""
    asked = sum(sum(rows) for _, rows, _ in groups)
    passed = sum(prompt - len(rows) for prompt, rows, _ in groups) + asked
    return passed - _shared(len(groups), workload), asked


def _weights(workload: Workload) -> tuple[int, int, int]:
    """Return the number of frozen parameters in the layers, of adapter parameters, and of the language head."""
    made = model(workload)
    layers = [x for x in made.model.layers.modules() if isinstance(x, torch.nn.Linear)]
    adapter = sum(int(LORA["r"]) * (x.in_features + x.out_features) for x in layers)
    sizes = SIZES[workload.size]
    return sum(x.weight.numel() for x in layers), adapter, sizes["vocab_size"] * sizes["hidden_size"]
