"""Thousands of samples, honest and hostile, on every core: how many a second, and what is left behind.

python -m rlm_sandbox.measured.stress [samples]
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from rlm_sandbox.comparing import same
from rlm_sandbox.interface import Input, Limits, Program
from rlm_sandbox.local import Local
from rlm_sandbox.measured.attacks_on_the_verdict import GRADING
from rlm_sandbox.measured.siege import CHECK, HONEST

WRONG = Program("def add(a, b):\n    return a - b\n")
HOSTILE = [Program(GRADING[name]) for name in ("os_exit", "eq_true", "fd_forge", "result_forge", "marker", "sys_exit")]
LATE = Program("def add(a, b):\n    while True: pass\n")
PATIENT = Limits(seconds=20.0)


class Left(NamedTuple):
    """What a process holds on to."""

    children: int
    descriptors: int
    megabytes: float


def left() -> Left:
    """What this process holds now: descendants of it, open files, memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Left(len(_below(os.getpid())), len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGESIZE") / 2**20)


def _below(pid: int) -> list[int]:
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found: list[int] = []
    frontier = {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        found += frontier
    return found


def sample(number: int) -> tuple[Program, Limits, bool]:
    """(program, limits, whether it is right): of 200 twenty are hostile, forty wrong, one never ends."""
    if number % 200 == 199:
        return LATE, Limits(seconds=0.2), False
    if number % 10 == 9:
        return HOSTILE[number // 10 % len(HOSTILE)], PATIENT, False
    return (WRONG, PATIENT, False) if number % 10 in (3, 6) else (HONEST, PATIENT, True)


def graded(sandbox: Local, program: Program, inputs: Sequence[Input], limits: Limits) -> bool:
    """Whether every input came to True."""
    return all(output.status == "ok" and same(output.value, True) for output in sandbox.run(program, inputs, limits))


def stress(sandbox: Local, count: int) -> tuple[int, float]:
    """(samples graded wrongly, seconds)."""

    def right(number: int) -> bool:
        program, limits, expected = sample(number)
        return graded(sandbox, program, [CHECK], limits) == expected

    begun = time.monotonic()
    with ThreadPoolExecutor(sandbox.size) as threads:
        wrong = 0
        for start in range(0, count, 500):  # all at once would leave a heap of futures in our own memory
            wrong += sum(not fine for fine in threads.map(right, range(start, min(start + 500, count))))
    return wrong, time.monotonic() - begun


def processor_seconds() -> float:
    """Of this process and of all that it has started and seen end."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def honest(sandbox: Local, count: int) -> int:
    """How many of `count` honest samples pass."""
    with ThreadPoolExecutor(sandbox.size) as threads:
        return sum(threads.map(lambda _: graded(sandbox, HONEST, [CHECK], PATIENT), range(count)))


def main() -> None:
    """Prints rates and leaks. On a busy machine the seconds of the clock say little, those of the processor do."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    sandbox = Local()
    sandbox.start()
    clock, cpu = time.monotonic(), processor_seconds()
    fine = honest(sandbox, 1000)
    clock = time.monotonic() - clock
    sandbox.close()
    cpu = processor_seconds() - cpu
    rate = f"{1000 / clock:.0f}/s on {sandbox.size} places, {cpu:.1f} ms of processor each"
    print(f"honest: {fine} of 1000 pass, {rate}; load {os.getloadavg()[0]:.1f}", flush=True)
    stress(sandbox, 200)
    before = left()
    wrong, seconds = stress(sandbox, count)
    print(f"mixed: {count} samples, {count / seconds:.0f}/s, {wrong} graded wrongly; load {os.getloadavg()[0]:.1f}")
    print(f"left behind: {before} before, {left()} after")
    sandbox.close()
    print(f"closed: {left()}")


if __name__ == "__main__":
    main()
