"""Time saved by generating during the update: ``python benchmarks/overlap_generation.py``.

The arms train GRPO of 01-addition.yaml with `stale: 1`, each run in a process of its own, in alternating order: in
one process with two threads or one, and with `generation_device: cpu`, which has one thread in each of two processes.
Every completion has full length, and rewards differ (`overlap_rewards.py`), so the update skips none. The weights of
the overlapped run must equal those of one thread bit for bit. Seconds are wall-clock time per optimizer step without
the first two, so the machine should be idle otherwise. CPU seconds, of trainer and second process, depend less on its
load.

::

    benchmarks/results/
      overlap_generation.json   every round
      overlap_generation.md     the table
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parent
LESSON = HERE.parent / "recipes" / "lessons" / "01-addition.yaml"
NAME = "overlap_generation"
SKIPPED, STEPS = 2, 6
"""Optimizer steps before the clock starts, and those that are timed; in the one after them nothing is generated."""
ONE, TWO, OVERLAPPED = "one process, 1 thread", "one process, 2 threads", "two processes"
ARMS = {
    TWO: ("2", "null"),
    ONE: ("1", "null"),
    OVERLAPPED: ("2", "cpu"),
}
"""Arm → threads, and `generation_device`."""
SMALL = {"name": "scratch", "layers": 2, "hidden": 128, "heads": 4, "intermediate": 384}
LARGE = {"name": "scratch", "layers": 4, "hidden": 256, "heads": 8, "intermediate": 768}
WORKLOADS: dict[str, tuple[dict[str, Any], int]] = {
    "quickstart, 48 tokens": (SMALL, 48),
    "quickstart, 160 tokens": (SMALL, 160),
    "4 layers of 256, 160 tokens": (LARGE, 160),
}
"""Name → model, and tokens of a completion."""
Record = dict[str, Any]


def train_once(workload: str, device: str) -> Record:
    """Train in this process; return seconds and CPU seconds per step, and a digest of the weights."""
    import psutil
    from transformers import TrainerCallback

    from rlm_plugins import recipe
    from rlm_plugins.recipe import yaml_strict
    from rlm_plugins.recipe.compose import compose
    from rlm_plugins.registry import Registry

    marks: list[tuple[float, float, float]] = []

    class Clock(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            children = (sum(child.cpu_times()[:2]) for child in psutil.Process().children())
            marks.append((time.perf_counter(), time.process_time(), sum(children)))

    model, tokens = WORKLOADS[workload]
    stage = yaml_strict.read(LESSON).data["stages"][1]
    stage["model"] |= model
    settings: Record = {
        "max_steps": SKIPPED + STEPS + 1,
        "max_completion_length": tokens,
        "save_strategy": "no",
        "stale": 1,
    }
    settings["generation_kwargs"] = {"min_new_tokens": tokens}
    stage["trainer"] |= settings | ({} if device == "null" else {"generation_device": device})
    stage["speed"] = {"tune_kernels": False}  # chosen per number of threads, so bits would differ
    stage["evaluation"] = None
    changes = [f"stages={json.dumps([stage])}", "rewards=[{name: run, seconds: 0}]"]
    (made,) = compose(recipe.load(LESSON, changes), Registry([HERE / "overlap_rewards.py"]))
    with tempfile.TemporaryDirectory() as folder:
        made.folder, made.watchers = Path(folder), [Clock()]
        made.trainer(made)
        digest = hashlib.sha256((made.output / "adapter_model.safetensors").read_bytes()).hexdigest()
    wall, own, other = ((y - x) / STEPS for x, y in zip(marks[SKIPPED - 1], marks[-2], strict=True))
    return {"wall": wall, "trainer": own, "second": other, "weights": digest}


def run(workload: str, arm: str) -> Record:
    """Return the record of a run in a process of its own.

    Raises:
        SystemExit: It failed.
    """
    threads, device = ARMS[arm]
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "RLM_TUNING": "off"}
    command = [sys.executable, str(Path(__file__)), "--one", workload, device]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{workload}, {arm}:\n{done.stderr}")
    record: Record = json.loads(done.stdout.splitlines()[-1])
    return record


def measure(rounds: int, workload: str) -> Iterator[Record]:
    """Yield the load of the machine before and after, and per round, arm → record; once after each round.

    Raises:
        SystemExit: The weights of the overlapped run differ from those of one thread.
    """
    load, found = os.getloadavg()[0], []
    for number in range(rounds):
        records = {arm: run(workload, arm) for arm in sorted(ARMS, reverse=bool(number % 2))}
        if records[ONE]["weights"] != records[OVERLAPPED]["weights"]:
            sys.exit(f"{workload}: the weights of '{ONE}' and '{OVERLAPPED}' differ")
        found.append(records)
        print(workload, number, {arm: round(x["wall"], 3) for arm, x in records.items()}, file=sys.stderr)
        yield {"cores": os.cpu_count(), "load": [load, os.getloadavg()[0]], "rounds": found}


def page(measured: dict[str, Record]) -> str:
    """Return the text of the table."""
    lines = [
        "# Generation during the update",
        "",
        f"`python benchmarks/{NAME}.py`: seconds per optimizer step of 64 completions, as medians of the rounds. `×`",
        "is the ratio of the faster run in one process to the run in two in the same round, its median and range. The",
        "weights of the run in two processes equal those of one thread bit for bit. The load is that of the machine",
        "before and after, divided by its cores. Above 1 other processes shared them, and `×` says little:",
        "two processes get twice the share of one.",
        "",
        "| model, completions | 1 process, 2 threads | 1 thread | 2 processes | × | range | rounds | load |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for workload, found in measured.items():
        rounds = found["rounds"]
        walls = [median(each[arm]["wall"] for each in rounds) for arm in (TWO, ONE, OVERLAPPED)]
        ratios = [min(each[ONE]["wall"], each[TWO]["wall"]) / each[OVERLAPPED]["wall"] for each in rounds]
        cells = [
            *(f"{x:.2f} s" for x in walls),
            f"**{median(ratios):.2f}**",
            f"{min(ratios):.2f}–{max(ratios):.2f}",
            str(len(rounds)),
            "–".join(f"{x / found['cores']:.1f}" for x in found["load"]),
        ]
        lines.append(f"| {workload} | {' | '.join(cells)} |")
    lines += [
        "",
        "CPU seconds of the same steps depend less on the load. The last column is the most that two free cores could",
        "gain over one thread: its CPU seconds, divided by the larger of those of the two processes.",
        "",
        "| model, completions | 1 thread | 2 processes: trainer | generation | at most × |",
        "|---|--:|--:|--:|--:|",
    ]
    for workload, found in measured.items():
        pairs = [(each[ONE], each[OVERLAPPED]) for each in found["rounds"]]
        cpu = [median(x) for x in zip(*((a["trainer"], b["trainer"], b["second"]) for a, b in pairs), strict=True)]
        most = median(a["trainer"] / max(b["trainer"], b["second"]) for a, b in pairs)
        lines.append(f"| {workload} | {' | '.join(f'{x:.2f} s' for x in cpu)} | {most:.2f} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each workload (default: %(default)s)")
    parser.add_argument("--only", choices=WORKLOADS, help="measure one workload; the results of the others are kept")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of the results")
    parser.add_argument("--one", nargs=2, metavar=("WORKLOAD", "DEVICE"), help="train once and print the record")
    asked = parser.parse_args(arguments)
    if asked.one:
        print(json.dumps(train_once(*asked.one)))
        return 0
    for workload in [asked.only] if asked.only else WORKLOADS:
        for found in measure(asked.rounds, workload):
            file = asked.out / f"{NAME}.json"
            known = json.loads(file.read_text()) if file.exists() else {}
            known = {name: found if name == workload else known.get(name) for name in WORKLOADS}
            known = {name: each for name, each in known.items() if each}
            file.write_text(json.dumps(known, indent=1) + "\n")
            (asked.out / f"{NAME}.md").write_text(page(known))
    print((asked.out / f"{NAME}.md").read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
