"""Time of a step against stock TRL: ``python benchmarks/grpo_speed.py`` (four minutes), ``--full`` (half an hour).

Arms that differ only in the trainer (`speed_arms.py`) take the same steps of the same workloads
(`speed_workloads.py`) in one process, in rotating order. First the gate (`speed_gate.py`): samples, gradients and
weights must equal those of stock TRL, or nothing is timed. Every timed run is checked again. Seconds are CPU time on
one thread; memory is measured in one process per arm.

``--full`` writes these files, and a sentence in README::

    benchmarks/results/
      grpo_speed.json   every number
      grpo_speed.md     the tables
      grpo_speed.png    the same as a figure, of the processor with most workloads
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import sys
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # as `rlm` does: waiting is no work, of stock TRL neither
os.environ.setdefault("PYTHONWARNINGS", "ignore::FutureWarning")

from rlm_fast.linear_layers import keep_freed_memory
from speed_arms import ARMS, BUDGET, DEFAULT, OFF, OTHER, OURS, SPARED, STOCK
from speed_gate import check, gate
from speed_limit import Machine, least, probe
from speed_memory import HELD, held
from speed_meter import Run
from speed_picture import draw
from speed_report import into, lines, page
from speed_run import run
from speed_workloads import WORKLOADS, Workload

Record = dict[str, Any]
ROOT = Path(__file__).resolve().parents[1]
MAIN = (DEFAULT, STOCK, OTHER, OURS, BUDGET)
EACH = tuple(name for name in ARMS if name != SPARED)
PLAN: dict[str, tuple[Sequence[str], int]] = {
    "B1": (EACH, 3),
    "B1d": (EACH, 3),
    "B2": (MAIN, 2),
    "B3": (MAIN, 2),
    "B4": (MAIN, 3),
    "U0": (MAIN, 2),
    **{f"U{25 * dead}": ((DEFAULT, OURS), 2) for dead in range(1, 4)},
    "B5": ((DEFAULT, STOCK, OURS, BUDGET), 2),
    "B5t": ((DEFAULT, OURS), 2),
}
"""Workload → its arms, and the number of rounds of `--full`."""
QUICK = ("B1", "B1d")
RETURNED = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
"""Settings of glibc with which freed tensors return to the system, so that RSS is what is in use. Only memory is
measured with them: a fault for each new page takes a tenth of a step or more, with stock TRL too."""


def rounds(name: str, workload: Workload, arms: Iterable[str], count: int, machine: Machine) -> Record:
    """Return the measurements of a workload's arms, round by round, after checking that all equal stock TRL.

    Stock TRL runs with two micro-batch sizes. The slower is measured once, unless "ours, all off" is compared with it.
    """
    names = list(arms)
    found: list[dict[str, Run]] = []
    for number in range(count):
        turn = number % len(names)
        found.append({})
        for arm in names[turn:] + names[:turn]:
            gc.collect()
            found[-1][arm] = run(workload, ARMS[arm])
            print(f"{name}, round {number + 1}, {arm}: {found[-1][arm].cpu:.2f} s", file=sys.stderr, flush=True)
        distances = check(name, found[-1])
        if {STOCK, OTHER} <= set(names) and OFF not in names:
            names.remove(max((STOCK, OTHER), key=lambda arm: found[0][arm].cpu))
    stock = found[-1][DEFAULT]
    return {
        "about": workload.about,
        "steps": workload.steps,
        "tokens": stock.tokens,
        "distances": distances,
        "least": least(workload, stock.groups, machine),
        "positions": {arm: made.positions for arm, made in found[0].items()},
        "rounds": [
            {arm: {**made.seconds, "wall": made.wall, "once": made.once} for arm, made in one.items()} for one in found
        ],
    }


def memory(workload: str) -> dict[str, int]:
    """Return arm → bytes in a workload, each measured in its own process."""
    os.environ.update(RETURNED)
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return dict(zip(HELD, pool.map(partial(held, workload), HELD, chunksize=1), strict=True))


def measure(names: Iterable[str], most: int | None = None) -> Record:
    """Run the gate, then the rounds of the workloads.

    Args:
        names: Keys of `PLAN`.
        most: Maximum number of rounds; None: as many as planned.
    """
    passed, machines = gate(), {threads: probe(threads) for threads in (1, 2)}
    packages = {name: version(name) for name in ("torch", "transformers", "trl", "peft")}
    found: Record = {"packages": packages, "machine": vars(machines[1]), "gate": passed, "workloads": {}}
    for name in names:
        arms, count = PLAN[name]
        count = count if most is None else min(count, most)
        found["workloads"][name] = rounds(name, WORKLOADS[name], arms, count, machines[WORKLOADS[name].threads])
    return found


def write(found: Record, folder: Path, readme: Path) -> None:
    """Write all files, and the sentence between the markers of README.

    Measurements of other processors, and of other workloads on this one, are kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file, name = folder / "grpo_speed.json", found["machine"]["name"]
    records: Record = json.loads(file.read_text()) if file.exists() else {}
    before = records.get(name, {})
    merged = {key: {**before.get(key, {}), **found[key]} for key in ("gate", "workloads", "memory")}
    records[name] = {**found, **merged}
    file.write_text(json.dumps(records, indent=1) + "\n")
    (folder / "grpo_speed.md").write_text(page(records))
    most = max(records.values(), key=lambda record: len(record["workloads"]))
    draw(most, folder / "grpo_speed.png")
    readme.write_text(into(readme.read_text(), lines(records)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and with `--full` write the files."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="every workload, and memory; write the files")
    parser.add_argument("--only", choices=(*PLAN, "M"), action="append", help="only these workloads")
    parser.add_argument("--rounds", type=int, help="at most so many rounds (with --full: as planned; else 1)")
    parser.add_argument("--write", action="store_true", help="write the files also with --only")
    asked = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", category=FutureWarning)  # TRL 1.16 uses deprecated names
    keep_freed_memory()  # as a run does: page faults are counted neither in stock TRL nor here
    chosen = asked.only or ((*PLAN, "M") if asked.full else QUICK)
    found = measure([name for name in chosen if name in PLAN], asked.rounds or (None if asked.full else 1))
    found["memory"] = {name: memory(name) for name in chosen if name == "M" or (asked.full and name == "B5")}
    if asked.write or (asked.full and not asked.only):
        write(found, ROOT / "benchmarks/results", ROOT / "README.md")
    print(page({found["machine"]["name"]: found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
