"""Time saved by computing rewards during generation: ``python benchmarks/overlap.py``.

Two arms train the same steps in one process, in alternating order: with `prefetch` of the reward, and without it. The
groups of four end at different times. Their weights must be equal bit for bit. Rewards (`overlap_rewards.py`)
take 0, 20 or 200 ms per completion: one is asynchronous, with a server that handles four requests at a time, one has
two processes. Neither uses a core of the model. Waiting is wall-clock time, so the machine should be idle otherwise.
The overhead of prefetching is CPU time.

::

    benchmarks/results/
      overlap.json   every step of every round
      overlap.md     the table
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")

import torch
from speed_arms import ARMS, OURS, build
from speed_workloads import WORKLOADS, Workload
from transformers import TrainerCallback

from rlm_plugins.registry import Registry
from rlm_plugins.stage import Reward

Record = dict[str, Any]
HERE = Path(__file__).parent
REGISTRY = Registry([HERE / "overlap_rewards.py"])
WORKLOAD = replace(
    WORKLOADS["B1"],
    about="0.75 M parameters, prompts of 16–32 tokens, 8 groups of 4, completions of 16 tokens on average, 96 at most",
    completion=96, mean=16, generations=4, steps=4,
)  # fmt: skip
WHO = {"without": False, "with": True}
"""Arm → `prefetch` of the reward."""
KINDS: dict[str, Record] = {"asynchronous": {"name": "asked"}, "two processes": {"name": "run", "processes": 2}}
TIMES = (0.0, 0.02, 0.2)


class Clock(TrainerCallback):
    """Wall-clock and CPU seconds of every step."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, float]] = []
        self._began = (0.0, 0.0)

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.perf_counter(), time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        clock, cpu = self._began
        self.steps.append((time.perf_counter() - clock, time.process_time() - cpu))


def step(workload: Workload, prefetch: bool, kind: str, seconds: float) -> tuple[float, float, torch.Tensor]:
    """Return wall-clock and CPU seconds per step, and the weights at the end.

    Means over all steps but the first, which has the self-checks.
    """
    settings = KINDS[kind]
    bound = REGISTRY.find("rlm_rewards", settings["name"]).bind({"seconds": seconds})
    torch.set_num_threads(1)
    gc.collect()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        reward = Reward(kind, bound, processes=settings.get("processes"), prefetch=prefetch)
        trainer = build(workload, ARMS[OURS], folder, reward)
        clock = Clock()
        trainer.add_callback(clock)
        trainer.train()
    learned = [x.detach().flatten() for x in trainer.model.parameters() if x.requires_grad]
    waited, worked = (sum(each) / len(each) for each in zip(*clock.steps[1:], strict=True))
    return waited, worked, torch.cat(learned)


def measure(rounds: int, workload: Workload = WORKLOAD, times: Sequence[float] = TIMES) -> list[Record]:
    """Return per kind and duration of the reward: arm → round → wall-clock and CPU seconds per step.

    Raises:
        SystemExit: The weights of the arms differ.
    """
    steps = []
    for kind in KINDS:
        for seconds in times:
            clock: dict[str, list[float]] = {name: [] for name in WHO}
            cpu: dict[str, list[float]] = {name: [] for name in WHO}
            for number in range(rounds):
                learned = {}
                for name in sorted(WHO, reverse=bool(number % 2)):
                    waited, worked, learned[name] = step(workload, WHO[name], kind, seconds)
                    clock[name].append(waited)
                    cpu[name].append(worked)
                if not torch.equal(*learned.values()):
                    sys.exit(f"'{kind}' with {seconds} s per completion: the weights of the arms differ")
                print(f"{kind}, {seconds} s per completion, round {number + 1}: {clock}", file=sys.stderr, flush=True)
            steps.append({"kind": kind, "seconds": seconds, "clock": clock, "cpu": cpu})
    return steps


def page(record: Record) -> str:
    """Return the text of ``overlap.md``."""
    lines = [
        "# Rewards during generation",
        "",
        f"`python benchmarks/overlap.py`: wall-clock seconds per step, median of {record['rounds']} rounds. The ratio",
        "is that of the two arms in the same round, its median and its range. Their weights are equal bit for bit. CPU",
        "is that of the training process.",
        f"The machine had {record['cores']} cores and a load of {record['load'][0]:.0f} before the start, "
        f"of {record['load'][1]:.0f} at the end; a load above 1 is due to other processes.",
        f"A step: {record['about'].replace('weights', 'parameters')}.",
        "",
        "| reward | per completion | without prefetch | with | × | range | CPU without | with |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for each in record["measured"]:
        slow, fast = each["clock"]["without"], each["clock"]["with"]
        ratios = [x / y for x, y in zip(slow, fast, strict=True)]
        worked = (f"{median(each['cpu'][name]):.3f} s" for name in WHO)
        lines.append(
            f"| {each['kind']} | {1000 * each['seconds']:.0f} ms | {median(slow):.2f} s | {median(fast):.2f} s "
            f"| **{median(ratios):.2f}** | {min(ratios):.2f}–{max(ratios):.2f} | {' | '.join(worked)} |"
        )
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each reward (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of the results")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", category=FutureWarning)
    load, measured = os.getloadavg()[0], measure(options.rounds)
    machine = {"cores": os.cpu_count(), "load": [load, os.getloadavg()[0]]}
    record = {"about": WORKLOAD.about, "rounds": options.rounds, **machine, "measured": measured}
    (options.out / "overlap.json").write_text(json.dumps(record, indent=1) + "\n")
    (options.out / "overlap.md").write_text(page(record))
    print(page(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
