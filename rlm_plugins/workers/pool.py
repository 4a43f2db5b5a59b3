"""Warm worker processes with a hard time limit per question: who is late is killed, and the next one starts fresh."""

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

STARTS = 3
"""Workers in a row that may end before they are ready."""

Reply = str
"""The line a worker said; ``late`` (killed) or ``died`` (out of memory, or worse)."""


class More(Protocol):
    """Further questions, which come up while others are being answered."""

    def take(self) -> list[Any]:
        """Those that have come up since they were taken last."""

    def fileno(self) -> int:
        """Readable when there are some."""


class Pool:
    """Workers that are started when they are first needed.

    Args:
        program: What they run.
        size: How many at most.
    """

    def __init__(self, program: Program, size: int) -> None:
        self.program, self.size = program, size
        self.workers: list[Worker] = []
        self._lock = threading.Lock()
        self._stillborn = 0

    def ask(self, questions: Sequence[Sequence[Any]], seconds: float, more: More | None = None) -> list[Reply]:
        """A reply to each question, in order, each within `seconds` of being asked.

        Args:
            questions: One per reply.
            seconds: From when a worker is handed a question.
            more: Where further questions come from, for workers that have nothing to do; their replies follow.

        Raises:
            PartError: No worker can be started.
        """
        with self._lock:
            try:
                return self._asked(list(questions), seconds, more)
            finally:  # an interrupt, or an error: nobody may answer the next call with what this one asked
                for worker in [w for w in self.workers if w.busy not in (None, -1)]:
                    self._end(worker)

    def _asked(self, questions: list[Sequence[Any]], seconds: float, more: More | None) -> list[Reply]:
        replies = [""] * len(questions)
        waiting, bereaved = deque(range(len(questions))), set[int]()
        while not all(replies):
            for question in more.take() if more is not None else ():
                waiting.append(len(questions))
                questions.append(question)
                replies.append("")
            self._staff(len(questions))
            for worker in [w for w in self.workers if w.busy is None][: len(waiting)]:
                if worker.ask(waiting[0], questions[waiting[0]], seconds):
                    waiting.popleft()
                else:
                    self._end(worker)
            for worker in self._due(more):
                number, reply = worker.busy, self._settled(worker)
                if number is None or number < 0 or not reply:
                    continue
                if reply == "died" and number not in bereaved:  # perhaps somebody killed it: once more
                    bereaved.add(number)
                    waiting.appendleft(number)
                else:
                    replies[number] = reply
        return replies

    def _staff(self, questions: int) -> None:
        """One more worker than there is work for: it is warm when somebody has to be killed."""
        while len(self.workers) < min(self.size, questions) + 1:
            self.workers.append(Worker(self.program))

    def _due(self, more: More | None = None) -> list[Worker]:
        """Waits until somebody has something to say or to ask, or is late; returns which workers."""
        busy = [w for w in self.workers if w.busy is not None]
        with selectors.DefaultSelector() as selector:
            for worker in busy:
                selector.register(worker.descriptor, selectors.EVENT_READ, worker)
            if more is not None:
                selector.register(more, selectors.EVENT_READ)
            patience = min((w.deadline for w in busy), default=0.0) - time.monotonic()
            heard = selector.select(max(0.0, patience)) if busy else []
            speaking = [key.data for key, _ in heard if key.data is not None]
        now = time.monotonic()
        return speaking or [w for w in busy if w.deadline <= now]

    def _settled(self, worker: Worker) -> Reply:
        """What a worker that is due has come to; empty when that is still open."""
        late = worker.deadline <= time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(worker.descriptor, selectors.EVENT_READ)
            line = worker.hear() if selector.select(0) else None
        if line is None and not late:
            return ""
        starting = worker.busy == -1
        if line and not line.startswith("failed"):
            worker.busy = None
            self._stillborn = 0 if starting else self._stillborn
            return line
        self._end(worker)
        self._stillborn += starting
        if starting and (line or self._stillborn == STARTS):
            reason = line.removeprefix("failed ") if line else "it ended, or took too long"
            raise PartError(f"no {self.program.name} can be started: {reason}", hint=self.program.hint)
        self._staff(self.size)
        return "late" if line is None else "died"

    def _end(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.end()

    def close(self) -> None:
        """Ends every worker."""
        for worker in list(self.workers):
            self._end(worker)


_pools: dict[tuple[Program, int], Pool] = {}


def shared(program: Program, size: int | None = None) -> Pool:
    """The pool of this process; by default its share of the machine's cores, four workers at most."""
    if size is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        size = max(1, min(4, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    return _pools.setdefault((program, size), Pool(program, size))


@atexit.register
def close() -> None:
    """Ends the workers of this process."""
    for pool in _pools.values():
        pool.close()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pools.clear)  # a child has workers of its own
