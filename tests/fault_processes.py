"""Runs on two processes for fault tests, forked from this one so that imports are not repeated."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fault_points import start_child, status_of

COUNT = 2


def in_ranks(task: Callable[[], Any], folder: Path, *, end_together: bool = False) -> list[int]:
    """Run a task on each rank of a process group; return the exit codes.

    Args:
        task: Called in each process.
        folder: Gets the output of each rank, ``rank-0.log`` and ``rank-1.log``.
        end_together: Kill the others as soon as one process has ended, as a launcher does.
    """
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]

    def ranked(rank: int) -> Any:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": COUNT, "LOCAL_WORLD_SIZE": COUNT}
        os.environ.update(address | {name: str(value) for name, value in ranks.items()})
        _forget_single_process()
        return task()

    logs = [folder / f"rank-{rank}.log" for rank in range(COUNT)]
    children = [start_child(lambda rank=rank: ranked(rank), log) for rank, log in enumerate(logs)]
    while end_together and not (ended := [child for child in children if _has_ended(child)]):
        time.sleep(0.01)
    for child in children if end_together else ():
        if child not in ended:
            os.kill(child, signal.SIGKILL)
    return [status_of(child) for child in children]


def _has_ended(child: int) -> bool:
    """Return True for a child that has ended without a call of `wait`."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def output(folder: Path) -> str:
    """Return what both ranks have printed."""
    return "\n".join((folder / f"rank-{rank}.log").read_text() for rank in range(COUNT))


def _forget_single_process() -> None:
    from accelerate.state import AcceleratorState, GradientState, PartialState

    for state in (AcceleratorState, GradientState, PartialState):
        state._shared_state.clear()
