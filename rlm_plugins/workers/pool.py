"""Pool of warm worker processes with a hard timeout per request: a late worker is killed and replaced."""

from __future__ import annotations

import atexit
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from rlm_plugins.errors import PartError
from rlm_plugins.workers.worker import Program, Worker

MAX_FAILED_STARTS = 3
"""Consecutive workers that may end before they are ready."""

Reply = str
"""A worker's line of output; ``late`` (killed) or ``died`` (out of memory, or worse)."""


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
