"""Where the time of a step goes: ``python benchmarks/speed_phases.py B5``, from `torch.profiler`.

Each phase of a step is divided into matrix products, attention, other kernels, and the remainder, which is Python and
the calls of PyTorch. Beside them is the limit of `speed_limit.py`: the same products at the machine's best rate.
"""

from __future__ import annotations

import argparse
import bisect
import contextlib
import io
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from rlm_fastgen import active_sequences, loop, sampling
from speed_arms import ARMS, BUDGET, OURS, build
from speed_limit import least, probe
from speed_meter import Meter
from speed_run import begin
from speed_workloads import WORKLOADS, Workload
from torch.profiler import ProfilerActivity, profile, record_function

from rlm_plugins.kernels.tuning import applied
from rlm_plugins.run import kernel_choices
from rlm_plugins.stage import NO_SPEED

KINDS = {
    "products": ("mm", "addmm", "addmv", "mv", "bmm", "dot", "mkldnn_linear", "linear_pointwise", "mkldnn_convolution"),
    "attention": ("scaled_dot_product",),
}
"""Kind of kernel → parts of the names of its operators; the last kind is all others."""
OTHER, HOST = "other kernels", "Python, calls"


def kind_of(name: str) -> str:
    """Return the kind of an operator of PyTorch."""
    bare = name.partition("::")[2].lstrip("_")
    if any(part in bare for part in KINDS["attention"]):
        return "attention"
    return "products" if bare in KINDS["products"] or "linear_pointwise" in bare else OTHER


@contextlib.contextmanager
def phases(trainer: Any) -> Iterator[None]:
    """Mark the phases of a step for the profiler."""
    sequences = active_sequences.ActiveSequences
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


def breakdown(workload: Workload, arm: str) -> tuple[dict[str, Counter[str]], Any]:
    """Return phase → kind → seconds of the second step of an arm, and its measurement."""
    torch.set_num_threads(workload.threads)
    choices = kernel_choices.values(replace(NO_SPEED, **(ARMS[arm].speed or {})))
    with applied(choices), tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        trainer = build(replace(workload, steps=2), ARMS[arm], folder)
        begin(trainer, workload)
        meter = Meter(trainer, workload)
        profiler = profile(activities=[ProfilerActivity.CPU], acc_events=True)
        trainer.create_optimizer()
        step = trainer.training_step
        trainer.training_step = lambda *given, **named: (
            profiler.start() if trainer.state.global_step == 1 and not profiler.profiler else None,
            step(*given, **named),
        )[1]
        with phases(trainer):
            trainer.train()
        profiler.stop()
    return _sums(profiler.events()), meter.found


def _sums(events: Sequence[Any]) -> dict[str, Counter[str]]:
    marks = sorted((e.time_range.start, e.time_range.end, e.name[6:]) for e in events if e.name.startswith("phase "))
    starts = [start for start, _, _ in marks]
    found: dict[str, Counter[str]] = {}
    for start, end, phase in marks:
        found.setdefault(phase, Counter())["all"] += (end - start) / 1e6
    for event in events:
        at = bisect.bisect_right(starts, event.time_range.start) - 1
        if (
            at >= 0 and event.time_range.start < marks[at][1] and event.name.startswith("aten::")
        ) or "mkldnn::" in event.name:
            found[marks[at][2]][kind_of(event.name)] += event.self_cpu_time_total / 1e6
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
    found, made = breakdown(WORKLOADS[asked.workload], asked.arm)
    kinds = ("all", "products", "attention", OTHER, HOST)
    print(f"| phase | {' | '.join(kinds)} |\n|---|{'--:|' * len(kinds)}")
    for phase, sums in found.items():
        print(f"| {phase} | {' | '.join(f'{sums[kind]:.2f}' for kind in kinds)} |")
    limit = least(WORKLOADS[asked.workload], made.groups[len(made.groups) // 2 :], probe())
    print("limit:", ", ".join(f"{name} {value:.2f} s" for name, value in limit.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
