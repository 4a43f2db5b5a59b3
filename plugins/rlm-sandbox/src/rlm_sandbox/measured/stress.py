"""Throughput and leaks with thousands of samples, honest and hostile, on all cores.

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

from rlm_sandbox.comparison import same
from rlm_sandbox.interface import Input, Limits, Program
from rlm_sandbox.local import Local
from rlm_sandbox.measured.attack_suite import CHECK, HONEST
from rlm_sandbox.measured.attacks_on_the_verdict import GRADING

WRONG = Program("def add(a, b):\n    return a - b\n")
HOSTILE = [Program(GRADING[name]) for name in ("os_exit", "eq_true", "fd_forge", "result_forge", "marker", "sys_exit")]
LATE = Program("def add(a, b):\n    while True: pass\n")
PATIENT = Limits(seconds=20.0)


class Resources(NamedTuple):
    """Resources that a process holds."""

    children: int
    descriptors: int
    megabytes: float


def resources_held() -> Resources:
    """Return what this process holds: descendants, open files, memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Resources(
        len(_descendants(os.getpid())), len(os.listdir("/proc/self/fd")), pages * os.sysconf("SC_PAGESIZE") / 2**20
    )


def _descendants(pid: int) -> list[int]:
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    descendants: list[int] = []
    frontier = {pid}
    while frontier:
        frontier = {child for child, parent in parents.items() if parent in frontier}
        descendants += frontier
    return descendants


def sample(number: int) -> tuple[Program, Limits, bool]:
    """Return (program, limits, whether it is correct): of 200 twenty are hostile, forty wrong, one never ends."""
    if number % 200 == 199:
        return LATE, Limits(seconds=0.2), False
    if number % 10 == 9:
        return HOSTILE[number // 10 % len(HOSTILE)], PATIENT, False
    return (WRONG, PATIENT, False) if number % 10 in (3, 6) else (HONEST, PATIENT, True)


def passes(sandbox: Local, program: Program, inputs: Sequence[Input], limits: Limits) -> bool:
    """Return True if the value of every input is True."""
    return all(output.status == "ok" and same(output.value, True) for output in sandbox.run(program, inputs, limits))


def stress(sandbox: Local, count: int) -> tuple[int, float]:
    """Return (samples graded wrongly, seconds)."""

    def is_graded_correctly(number: int) -> bool:
        program, limits, expected = sample(number)
        return passes(sandbox, program, [CHECK], limits) == expected

    start_time = time.monotonic()
    with ThreadPoolExecutor(sandbox.size) as threads:
        wrong = 0
        for start in range(0, count, 500):  # in chunks, or the futures would dominate this process's memory
            wrong += sum(
                not correct for correct in threads.map(is_graded_correctly, range(start, min(start + 500, count)))
            )
    return wrong, time.monotonic() - start_time


def processor_seconds() -> float:
    """Return the processor time of this process and of its ended descendants."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def honest(sandbox: Local, count: int) -> int:
    """Return how many of `count` honest samples pass."""
    with ThreadPoolExecutor(sandbox.size) as threads:
        return sum(threads.map(lambda _: passes(sandbox, HONEST, [CHECK], PATIENT), range(count)))


def main() -> None:
    """Print rates and leaks. On a busy machine only the processor time is meaningful."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    sandbox = Local()
    sandbox.start()
    elapsed, cpu_seconds = time.monotonic(), processor_seconds()
    passed = honest(sandbox, 1000)
    elapsed = time.monotonic() - elapsed
    sandbox.close()
    cpu_seconds = processor_seconds() - cpu_seconds
    rate = f"{1000 / elapsed:.0f}/s on {sandbox.size} workers, {cpu_seconds:.1f} ms of processor each"
    print(f"honest: {passed} of 1000 pass, {rate}; load {os.getloadavg()[0]:.1f}", flush=True)
    stress(sandbox, 200)
    before = resources_held()
    errors, seconds = stress(sandbox, count)
    print(f"mixed: {count} samples, {count / seconds:.0f}/s, {errors} graded wrongly; load {os.getloadavg()[0]:.1f}")
    print(f"left behind: {before} before, {resources_held()} after")
    sandbox.close()
    print(f"closed: {resources_held()}")


if __name__ == "__main__":
    main()
