"""The worker pool: no hangs, replacement of workers, no orphans, daemon and forked processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from rlm_math import math_accuracy
from rlm_math.comparison import Query
from rlm_math.reward import PROGRAM

from rlm_plugins.errors import PartError
from rlm_plugins.workers.pool import Pool

RIGHT, WRONG = Query(r"\sqrt{4}", ("2",)), Query(r"\sqrt{4}", ("3",))
SLOW = "+".join(rf"\arctan(x+{k})" for k in range(1000))
BOMB = Query(SLOW, (f"{SLOW}+0",))
"""More than a minute of ball arithmetic."""


@pytest.fixture
def pool() -> Pool:
    workers = Pool(PROGRAM, 2)
    yield workers
    workers.close()


def alive(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


def gone(pids: list[int], patience: float = 60.0) -> bool:
    end = time.monotonic() + patience
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(alive, pids))


def test_replies_come_in_order_and_bombs_are_killed(pool: Pool) -> None:
    pool.run([RIGHT], 3.0)
    assert pool.run([RIGHT, BOMB, WRONG, BOMB, RIGHT], 1.0) == ["right", "late", "wrong", "late", "right"]
    assert pool.run([WRONG, RIGHT], 3.0) == ["wrong", "right"]


def test_crashed_worker_is_replaced(pool: Pool) -> None:
    assert pool.run([RIGHT], 3.0) == ["right"]
    for worker in pool.workers:
        os.kill(worker.pid, signal.SIGKILL)
    assert pool.run([RIGHT, WRONG] * 5, 3.0) == ["right", "wrong"] * 5


def test_a_thousand_questions(pool: Pool) -> None:
    assert pool.run([RIGHT, WRONG] * 500, 3.0) == ["right", "wrong"] * 500
    assert len(pool.workers) <= 3


def test_missing_flint_is_a_part_error(pool: Pool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "flint.py").write_text("raise ImportError('no flint here')")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PartError, match="no flint here"):
        pool.run([RIGHT], 3.0)


@pytest.mark.skipif(not Path("/proc/self/limits").exists(), reason="reads /proc")
def test_workers_have_a_processor_time_limit(pool: Pool) -> None:
    """If the trainer is killed while a worker is busy, the processor time limit ends the worker."""
    assert pool.run([RIGHT], 3.0) == ["right"]
    limits = [Path(f"/proc/{worker.pid}/limits").read_text() for worker in pool.workers]
    seconds = [line.split()[3] for text in limits for line in text.splitlines() if line.startswith("Max cpu time")]
    assert any(word.isdecimal() and int(word) < 60 for word in seconds)


SCRIPT = """
import os, sys, time
from rlm_math import math_accuracy
from rlm_plugins.workers.pool import _pools
assert math_accuracy([r"\\boxed{\\sqrt{4}}"], ["2"], seconds=30) == [1.0]
print(*[worker.pid for pool in _pools.values() for worker in pool.workers], flush=True)
%s
"""


def _listens() -> None:
    """Restore SIGINT, which background processes of a shell ignore and pass on to their children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(ending: str) -> tuple[subprocess.Popen[str], list[int]]:
    """Start a process with a warm pool, and return it with the process ids of its workers."""
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT % ending],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
        preexec_fn=_listens,
    )
    assert process.stdout is not None
    return process, [int(word) for word in process.stdout.readline().split()]


BUSY = r"""
sines = "+".join(f"\\sin(x+{k})" for k in range(100))
math_accuracy([f"\\boxed{{{sines}}}"], [f"0+{sines}"], seconds=4)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "sent"),
    [
        ("", None),
        ("os._exit(0)", None),
        ("raise SystemExit(3)", None),
        ("time.sleep(60)", signal.SIGINT),
        ("time.sleep(60)", signal.SIGTERM),
        ("time.sleep(60)", signal.SIGKILL),
        (BUSY, signal.SIGINT),
        (BUSY, signal.SIGKILL),
    ],
)
def test_no_worker_is_left_behind(ending: str, sent: int | None) -> None:
    process, workers = started(ending)
    assert workers
    if sent is not None:
        time.sleep(0.3)
        os.killpg(process.pid, sent)
    process.wait(timeout=120)
    assert gone(workers)


def scored(answers: list[str]) -> list[float | None]:
    return math_accuracy([r"\boxed{\sqrt{4}}"] * len(answers), answers, seconds=30)


@pytest.mark.slow
def test_forked_processes_have_their_own_workers() -> None:
    """After a fork the children must not use the parent's workers."""
    assert scored(["2"]) == [1.0]
    readers = []
    for _ in range(2):
        reader, writer = os.pipe()
        if os.fork() == 0:
            try:
                os.write(writer, repr(scored(["2", "3"])).encode())
            finally:
                os._exit(0)
        os.close(writer)
        readers.append(reader)
    assert scored(["3", "2"]) == [0.0, 1.0]
    assert [os.read(reader, 99) for reader in readers] == [b"[1.0, 0.0]"] * 2
    for _ in readers:
        os.wait()


START = """
import multiprocessing, sys
from rlm_math import math_accuracy

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        jobs = [([r"\\boxed{\\sqrt{4}}"], ["2"]), ([r"\\boxed{\\sqrt{4}}"], ["3"])]
        print(pool.starmap(math_accuracy, jobs))
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", [m for m in ("spawn", "forkserver") if m in multiprocessing.get_all_start_methods()])
def test_pool_works_in_daemon_processes(method: str, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(START)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, str(tmp_path / "main.py"), method]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[[1.0], [0.0]]", done.stderr[-2000:]
