"""Pool of warm worker processes with a hard timeout per request: a late worker is killed and replaced."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from rlm_plugins.errors import PartError

START_TIMEOUT = 120.0
"""Seconds in which a worker must have imported what it needs."""
MINIMAL = ("PATH", "LANG", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Environment variables that every program gets: no tokens, no settings."""
MAX_FAILED_STARTS = 3
"""Consecutive workers that may end before they are ready."""

Reply = str
"""A worker's line of output; ``late`` (killed) or ``died`` (out of memory, or worse)."""


@dataclass(frozen=True)
class Program:
    """Program of a worker: it prints ``ready``, then one line per line of JSON; ``failed …`` ends it.

    Args:
        script: The file, run by path.
        arguments: Of its command line.
        name: Its name in errors.
        hint: What to do where it does not start.
        environment: Names of its environment variables; None: all.
    """

    script: Path
    arguments: tuple[str, ...] = ()
    name: str = "worker"
    hint: str = ""
    environment: tuple[str, ...] | None = MINIMAL


class Worker:
    """One process; `busy` is the number of its request, -1 while it starts, None while it is idle."""

    def __init__(self, program: Program) -> None:
        names = program.environment
        variables = {k: v for k, v in os.environ.items() if names is None or k in names}
        paths = [str(Path(path or ".").resolve()) for path in sys.path]
        # a session of its own: Ctrl-C reaches the trainer alone, which then ends its workers by closing their input
        self._process = subprocess.Popen(
            [sys.executable, "-B", "-P", str(program.script), *program.arguments],
            env={**variables, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._buffer = b""
        self.pid, self.descriptor = self._process.pid, self._stdout.fileno()
        self.busy: int | None = -1
        self.deadline = time.monotonic() + START_TIMEOUT

    def send(self, number: int, request: Sequence[Any], seconds: float) -> bool:
        """Send a request; return False if the worker has ended."""
        try:
            self._stdin.write(json.dumps([*request, seconds]).encode() + b"\n")
            self._stdin.flush()
        except OSError:
            return False
        self.busy, self.deadline = number, time.monotonic() + seconds
        return True

    def read_line(self) -> str | None:
        """Return a line of output, "" if the worker has ended, None if the line is incomplete; reads once."""
        piece = os.read(self.descriptor, 65536)
        self._buffer += piece
        if b"\n" not in self._buffer:
            return None if piece else ""
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode().strip()

    def kill(self) -> None:
        """Kill the process and wait until it has ended."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):  # flushing a last line into a closed pipe
                pipe.close()


class RequestQueue(Protocol):
    """Further requests, which arrive while others are running."""

    def take(self) -> list[Any]:
        """Return those that have arrived since the last call."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when there are some."""


class Pool:
    """Pool of workers, which start when they are first needed.

    Args:
        program: Of all workers.
        size: Maximum number of busy workers.
    """

    def __init__(self, program: Program, size: int) -> None:
        self.program, self.size = program, size
        self.workers: list[Worker] = []
        self._lock = threading.Lock()
        self._failed_starts = 0

    def run(self, requests: Sequence[Sequence[Any]], seconds: float, more: RequestQueue | None = None) -> list[Reply]:
        """Return a reply per request, in order, each within `seconds`.

        Args:
            requests: One per reply.
            seconds: Timeout from when a worker gets a request.
            more: Further requests, for idle workers; their replies follow.

        Raises:
            PartError: No worker can be started.
        """
        with self._lock:
            try:
                return self._run(list(requests), seconds, more)
            finally:  # after an interrupt or an error, no reply of this call may reach the next one
                for worker in [w for w in self.workers if w.busy not in (None, -1)]:
                    self._kill(worker)

    def _run(self, requests: list[Sequence[Any]], seconds: float, more: RequestQueue | None) -> list[Reply]:
        replies = [""] * len(requests)
        waiting, retried = deque(range(len(requests))), set[int]()
        while not all(replies):
            for request in more.take() if more is not None else ():
                waiting.append(len(requests))
                requests.append(request)
                replies.append("")
            self._start_workers(len(requests))
            for worker in [w for w in self.workers if w.busy is None][: len(waiting)]:
                if worker.send(waiting[0], requests[waiting[0]], seconds):
                    waiting.popleft()
                else:
                    self._kill(worker)
            for worker in self._wait(more):
                number, reply = worker.busy, self._reply(worker)
                if number is None or number < 0 or not reply:
                    continue
                if reply == "died" and number not in retried:  # it may have been killed from outside: retry once
                    retried.add(number)
                    waiting.appendleft(number)
                else:
                    replies[number] = reply
        return replies

    def _start_workers(self, requests: int) -> None:
        """Start one worker more than there is work for: it is warm when another has to be killed."""
        while len(self.workers) < min(self.size, requests) + 1:
            self.workers.append(Worker(self.program))

    def _wait(self, more: RequestQueue | None = None) -> list[Worker]:
        """Wait for output, a further request or a deadline; return the workers concerned."""
        busy = [w for w in self.workers if w.busy is not None]
        with selectors.DefaultSelector() as selector:
            for worker in busy:
                selector.register(worker.descriptor, selectors.EVENT_READ, worker)
            if more is not None:
                selector.register(more, selectors.EVENT_READ)
            timeout = min((w.deadline for w in busy), default=0.0) - time.monotonic()
            events = selector.select(max(0.0, timeout)) if busy else []
            readable = [key.data for key, _ in events if key.data is not None]
        now = time.monotonic()
        return readable or [w for w in busy if w.deadline <= now]

    def _reply(self, worker: Worker) -> Reply:
        """Return the reply of a worker that has output or is late; empty while its line is incomplete."""
        late = worker.deadline <= time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(worker.descriptor, selectors.EVENT_READ)
            line = worker.read_line() if selector.select(0) else None
        if line is None and not late:
            return ""
        starting = worker.busy == -1
        if line and not line.startswith("failed"):
            worker.busy = None
            self._failed_starts = 0 if starting else self._failed_starts
            return line
        self._kill(worker)
        self._failed_starts += starting
        if starting and (line or self._failed_starts == MAX_FAILED_STARTS):
            reason = line.removeprefix("failed ") if line else "it ended, or took too long"
            raise PartError(f"no {self.program.name} can be started: {reason}", hint=self.program.hint)
        self._start_workers(self.size)
        return "late" if line is None else "died"

    def _kill(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.kill()

    def close(self) -> None:
        """Kill every worker."""
        for worker in list(self.workers):
            self._kill(worker)


_pools: dict[tuple[Program, int], Pool] = {}


def shared(program: Program, size: int | None = None) -> Pool:
    """Return this process's pool of a program; by default with its share of the cores, at most four."""
    if size is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        size = max(1, min(4, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    return _pools.setdefault((program, size), Pool(program, size))


@atexit.register
def close() -> None:
    """Kill the workers of this process."""
    for pool in _pools.values():
        pool.close()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # a forked process must not use its parent's workers
