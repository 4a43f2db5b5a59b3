"""Pool of warm worker processes with a hard timeout per request: a late worker is killed and replaced."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import queue
import selectors
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    """One process of this machine, which is started at once and usable when it `is_ready`."""

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
        self._stdin, self._stdout, self._buffer = self._process.stdin, self._process.stdout, b""
        self.pid, self.is_ready = self._process.pid, False

    def send(self, request: Sequence[Any], seconds: float) -> bool:
        """Send a request; return False if the worker has ended."""
        try:
            self._stdin.write(json.dumps([*request, seconds]).encode() + b"\n")
            self._stdin.flush()
        except OSError:
            return False
        return True

    def read_line(self, seconds: float) -> str | None:
        """Return the next line of output; "" if the worker has ended, None if there is none in time."""
        deadline = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    return None
                piece = os.read(self._stdout.fileno(), 65536)
                if not piece:
                    return ""
                self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode().strip()

    def kill(self) -> None:
        """Kill the process; a thread that reads a line then gets the end of the output."""
        self._process.kill()

    def close(self) -> None:
        """Kill the process and wait until it has ended."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):  # flushing a last line into a closed pipe
                pipe.close()


Executor = Callable[[Program], Worker]
"""A place where workers run: it starts one. A worker of another place is a subclass with these four methods."""


@dataclass(eq=False)
class _Task:
    request: Sequence[Any]
    seconds: float
    reply: Future[Reply] = field(default_factory=Future)
    worker: Worker | None = None
    is_abandoned: bool = False


class Pool:
    """Pool of workers, which start when needed; one thread per busy worker, `size` at most, waits for its reply."""

    def __init__(self, program: Program, size: int, executor: Executor = Worker) -> None:
        self.program, self.size, self._executor = program, size, executor
        self.workers: list[Worker] = []
        self._idle: deque[Worker] = deque()
        self._tasks: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads, self._failed_starts, self._is_closed = 0, 0, False

    def run(self, requests: Sequence[Sequence[Any]], seconds: float) -> list[Reply]:
        """Return a reply per request, in order, each within `seconds` from when a worker gets the request.

        Raises:
            PartError: No worker can be started.
        """
        tasks = [self._add(request, seconds) for request in requests]
        try:
            return [task.reply.result() for task in tasks]
        finally:  # after an interrupt or an error, no request of this call may occupy a worker
            for task in tasks:
                self._abandon(task)

    def submit(self, request: Sequence[Any], seconds: float) -> Future[Reply]:
        """Return the future reply to a request."""
        return self._add(request, seconds).reply

    def _add(self, request: Sequence[Any], seconds: float) -> _Task:
        task = _Task(request, seconds)
        self._tasks.put(task)
        with self._lock:
            if self._threads < self.size:
                self._threads += 1
                threading.Thread(target=self._serve, daemon=True, name=self.program.name).start()
        return task

    def _abandon(self, task: _Task) -> None:
        """Cancel a task that is not done; a worker that has its request is killed."""
        if task.reply.done() or task.reply.cancel():
            return
        with self._lock:
            task.is_abandoned = True
            if task.worker is not None and task.worker.is_ready:
                task.worker.kill()

    def _serve(self) -> None:
        while True:
            task = self._tasks.get()
            if task.reply.set_running_or_notify_cancel():
                try:
                    task.reply.set_result(self._reply(task))
                except BaseException as error:
                    task.reply.set_exception(error)

    def _reply(self, task: _Task) -> Reply:
        """Return the reply to a request; a worker that died may have been killed from outside, so it is sent twice."""
        for is_last in (False, True):
            worker = self._send(task)
            line = worker.read_line(task.seconds)
            if line:
                self._release(worker)
                return line
            self._discard(worker)
            if line is None:
                return "late"
            if is_last or task.is_abandoned or self._is_closed:
                break
            logging.getLogger(__name__).warning("a %s ended; its request is sent once more", self.program.name)
        return "died"

    def _send(self, task: _Task) -> Worker:
        """Send a request to a worker that is ready, and return it."""
        while True:
            worker = task.worker = self._take()
            if self._becomes_ready(worker):
                if task.is_abandoned:
                    self._release(worker)
                    raise PartError(f"the request to a {self.program.name} was abandoned")
                if worker.send(task.request, task.seconds):
                    return worker
            self._discard(worker)

    def _take(self) -> Worker:
        """Return an idle worker, and have another one started: it is warm when one has to be killed."""
        with self._lock:
            if self._is_closed:
                raise PartError(f"the pool of each {self.program.name} is closed")
            worker = self._idle.popleft() if self._idle else self._start()
            if not self._idle and len(self.workers) <= self.size:
                self._idle.append(self._start())
            return worker

    def _start(self) -> Worker:
        worker = self._executor(self.program)
        self.workers.append(worker)
        return worker

    def _becomes_ready(self, worker: Worker) -> bool:
        """Wait until a worker is ready; False: it ended or takes too long. Raise if it failed, or too many ended."""
        if worker.is_ready:
            return True
        line = worker.read_line(START_TIMEOUT)
        if line and not line.startswith("failed"):
            worker.is_ready, self._failed_starts = True, 0
            return True
        self._failed_starts += 1
        if line or self._failed_starts >= MAX_FAILED_STARTS:
            self._discard(worker)
            reason = line.removeprefix("failed ") if line else "it ended, or took too long"
            raise PartError(f"no {self.program.name} can be started: {reason}", hint=self.program.hint)
        return False

    def _release(self, worker: Worker) -> None:
        with self._lock:
            self._idle.appendleft(worker)

    def _discard(self, worker: Worker) -> None:
        with self._lock:
            if worker in self.workers:
                self.workers.remove(worker)
        worker.close()

    def close(self) -> None:
        """Kill every worker."""
        self._is_closed = True
        for worker in list(self.workers):
            worker.kill()


_pools: dict[tuple[Program, int], Pool] = {}
_executor: Executor = Worker


def shared(program: Program, size: int | None = None) -> Pool:
    """Return this process's pool of a program; by default with its share of the cores, at most four."""
    if size is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        size = max(1, min(4, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    return _pools.setdefault((program, size), Pool(program, size, _executor))


@contextlib.contextmanager
def executed_by(executor: Executor) -> Iterator[None]:
    """Let an executor start the workers of shared pools inside a ``with`` block; they end with it."""
    global _executor
    close()
    before, _executor = _executor, executor
    try:
        yield
    finally:
        close()
        _executor = before


@atexit.register
def close() -> None:
    """Kill the workers of this process."""
    for pool in _pools.values():
        pool.close()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # a forked process must not use its parent's workers
