"""Time of each phase of a step by `torch.profiler`: ``python benchmarks/speed_phases.py B5``.

Each phase of a step is divided into matrix products, attention, other kernels, and the remainder. The remainder is
Python, the calls of PyTorch and the profiler. The last line is the limit of `speed_limit.py`: the products at the best
rate of the machine.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import io
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # as `rlm` does

import torch
from rlm_fast import loop, sampling, tuning
from rlm_fast.linear_layers import keep_freed_memory
from rlm_fast.speed import NO_SPEED
from rlm_fast.tuning import applied
from speed_arms import ARMS, BUDGET, OURS, build
from speed_limit import least, probe
from speed_meter import Meter, Run
from speed_run import begin
from speed_workloads import WORKLOADS, Workload
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import TrainerCallback

KINDS = {
    "products": ("mm", "addmm", "addmm_", "bmm", "linear_pointwise"),
    "attention": ("scaled_dot_product",),
}
"""Kind of kernel → parts of the names of its operators; the last kind is all others."""
OTHER, HOST = "other kernels", "Python, calls"


def kind_of(name: str) -> str:
    """Return the kind of an operator of PyTorch."""
    bare = name.partition("::")[2].lstrip("_")
    if any(part in bare for part in KINDS["attention"]):
        return "attention"
    return "products" if bare in KINDS["products"] else OTHER


@contextlib.contextmanager
def phases(trainer: Any) -> Iterator[None]:
    """Mark the phases of a step for the profiler."""
    sequences = loop.ActiveSequences
    places: list[tuple[Any, str, str]] = [
        (sequences, "prefill", "prefill"),
        (sequences, "next_logits", "decoding"),
        (sampling.MultinomialSampler, "__call__", "sampling"),
        (loop, "token_statistics", "sampling"),
        (loop, "verified_step", "decoding"),
        (trainer, "compute_loss", "forward"),
        (trainer.accelerator, "backward", "backward"),
        (trainer.optimizer, "step", "optimizer"),
    ]
    with contextlib.ExitStack() as stack:
        for owner, name, phase in places:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, _marked(getattr(owner, name), phase))
        yield


def _marked(method: Callable[..., Any], phase: str) -> Callable[..., Any]:
    def marked(*given: Any, **named: Any) -> Any:
        with record_function(f"phase {phase}"):
            return method(*given, **named)

    return marked


def breakdown(workload: Workload, arm: str) -> tuple[dict[str, Counter[str]], Run]:
    """Return the CPU seconds of the second step of an arm, phase → kind, and the measurement of both steps."""
    torch.set_num_threads(workload.threads)
    choices = tuning.values(replace(NO_SPEED, **(ARMS[arm].speed or {})))
    with applied(choices), tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        trainer = build(replace(workload, steps=2), ARMS[arm], folder)
        begin(trainer, workload)
        meter = Meter(trainer, workload)
        trainer.create_optimizer()
        recorder = Recorder()
        trainer.add_callback(recorder)
        with phases(trainer):
            trainer.train()
    return recorder.sums(), meter.found


class Recorder(TrainerCallback):
    """Profiles the second step: the first allocates memory and compiles kernels."""

    def __init__(self) -> None:
        self._profiler = profile(activities=[ProfilerActivity.CPU])
        self._share = 1.0

    def on_step_begin(self, *given: Any, **_: Any) -> None:
        if given[1].global_step == 1:
            self._began = time.process_time(), time.perf_counter()
            self._profiler.start()

    def on_step_end(self, *given: Any, **_: Any) -> None:
        if given[1].global_step == 2:
            self._profiler.stop()
            cpu, wall = self._began
            self._share = (time.process_time() - cpu) / (time.perf_counter() - wall)

    def sums(self) -> dict[str, Counter[str]]:
        """Return phase → kind → seconds. The clock of the profiler counts other processes, so times are scaled."""
        events = self._profiler.events()
        marks = sorted(
            (e.time_range.start, e.time_range.end, e.name[6:]) for e in events if e.name.startswith("phase ")
        )
        starts = [start for start, _, _ in marks]
        found: dict[str, Counter[str]] = {}
        for start, end, phase in marks:
            found.setdefault(phase, Counter())["all"] += (end - start) / 1e6 * self._share
        for event in events:
            at = bisect.bisect_right(starts, event.time_range.start) - 1
            is_inside = at >= 0 and event.time_range.start < marks[at][1]
            if is_inside and event.name.startswith(("aten::", "mkldnn::")):
                found[marks[at][2]][kind_of(event.name)] += event.self_cpu_time_total / 1e6 * self._share
        for sums in found.values():
            sums[HOST] = sums["all"] - sum(value for kind, value in sums.items() if kind != "all")
        return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--arm", choices=(OURS, BUDGET), default=OURS)
    asked = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", category=FutureWarning)
    keep_freed_memory()
    found, made = breakdown(WORKLOADS[asked.workload], asked.arm)
    kinds = ("all", "products", "attention", OTHER, HOST)
    print(f"| phase | {' | '.join(kinds)} |\n|---|{'--:|' * len(kinds)}")
    for phase, sums in found.items():
        print(f"| {phase} | {' | '.join(f'{sums[kind]:.2f}' for kind in kinds)} |")
    machine = probe(WORKLOADS[asked.workload].threads)
    limit = least(WORKLOADS[asked.workload], made.groups[len(made.groups) // 2 :], machine)
    print("limit:", ", ".join(f"{name} {value:.2f} s" for name, value in limit.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
