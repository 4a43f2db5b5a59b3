"""Rewards that are asked before their answers are needed: what they take is spent while the model decodes and reads.

Nothing changes but when: an answer that was begun is taken only for the same question, word for word; whatever was not
begun is asked when it is needed.
"""

from __future__ import annotations

import asyncio
import json
import math
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any

from rlm_plugins.rewards.guard import Columns, groups_of, some
from rlm_plugins.rewards.score_validation import listed

CHEAP = 0.05
"""Seconds: an asynchronous reward whose last batch took less in all is not asked ahead, for waking its thread for every
group costs about as much."""


def key(question: Mapping[str, Any]) -> str:
    """A question word for word, and nothing that is no column."""
    return json.dumps({name: x for name, x in question.items() if isinstance(x, list)}, sort_keys=True, default=repr)


class Begun:
    """Answers that are on their way, each to one question."""

    def __init__(self) -> None:
        self._futures: dict[str, Future[Any]] = {}

    def add(self, question: Mapping[str, Any], answer: Callable[[], Future[Any]]) -> None:
        """Begins with a question, unless that has been done."""
        if (name := key(question)) not in self._futures:
            self._futures[name] = answer()

    def take(self, question: Mapping[str, Any]) -> Future[Any] | None:
        """The answer to a question, once; None: nobody has begun with it."""
        return self._futures.pop(key(question), None) if self._futures else None

    def forget(self) -> None:
        """What was begun and never asked for is of no use to the next batch."""
        for future in self._futures.values():
            future.cancel()
        self._futures.clear()


class Asker:
    """A thread that asks about what has come up; whoever answers may take what comes up meanwhile.

    Args:
        ask: Answers all it takes, in order, and may take long; what it raises is every asker's.
    """

    def __init__(self, ask: Callable[[Asker], Sequence[Any]]) -> None:
        self._ask = ask
        self._waiting: deque[tuple[Any, Future[Any]]] = deque()
        self._taken: list[Future[Any]] = []
        self._bell, self._door = socket.socketpair()
        self._door.setblocking(False)
        self._bell.setblocking(False)
        self._thread: threading.Thread | None = None

    def begin(self, question: Any) -> Future[Any]:
        """Takes a question; its answer comes."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="rewards ahead")
            self._thread.start()
        answer: Future[Any] = Future()
        self._waiting.append((question, answer))
        with suppress(BlockingIOError):  # it has rung often enough
            self._bell.send(b".")
        return answer

    def take(self) -> list[Any]:
        """The questions that have come up since they were taken last."""
        with suppress(BlockingIOError):
            self._door.recv(4096)
        found = []
        while self._waiting:
            question, answer = self._waiting.popleft()
            if answer.set_running_or_notify_cancel():
                found.append(question)
                self._taken.append(answer)
        return found

    def fileno(self) -> int:
        """What a selector waits at: readable when there is something to take."""
        return self._door.fileno()

    def _work(self) -> None:
        at_the_door = selectors.DefaultSelector()
        at_the_door.register(self, selectors.EVENT_READ)
        while at_the_door.select():
            self._taken = []
            try:
                said = self._ask(self)
                for answer, x in zip(self._taken, said, strict=True):
                    answer.set_result(x)
            except BaseException as error:
                for answer in self._taken:
                    if not answer.done():
                        answer.set_exception(error)


class Waiting:
    """An asynchronous reward, asked on TRL's event loop.

    Args:
        answer: Asks it about the columns of some rows.
        by_group: Whether it may be asked about each group alone; else the batch is one question.
    """

    def __init__(self, answer: Callable[[Columns], Coroutine[Any, Any, Any]], *, by_group: bool) -> None:
        self._answer, self.by_group = answer, by_group
        self._begun = Begun()
        self._took, self._taking = math.inf, 0.0  # seconds: of the last batch, of this one so far

    def begin(self, columns: Columns, loop: asyncio.AbstractEventLoop) -> None:
        """Asks now what :meth:`ask` will be asked, unless it is cheap; of the whole groups in these columns."""
        if self._took < CHEAP:
            return
        for rows in self._pieces(columns):
            piece = some(columns, rows)
            self._begun.add(piece, partial(self._start, piece, loop))

    def _start(self, piece: Columns, loop: asyncio.AbstractEventLoop) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(self._timed(piece), loop)

    async def _timed(self, columns: Columns) -> Any:
        began = time.perf_counter()
        try:
            return await self._answer(columns)
        finally:
            self._taking += time.perf_counter() - began

    async def ask(self, columns: Columns) -> Any:
        """What the reward says; what has not been begun is asked about at once."""
        try:
            return await self._said(columns)
        finally:
            self._took, self._taking = self._taking, 0.0

    async def _said(self, columns: Columns) -> Any:
        pieces = self._pieces(columns)
        early = [(rows, self._begun.take(some(columns, rows))) for rows in pieces]
        self._begun.forget()
        late = [row for rows, future in early if future is None for row in rows]
        if sum(map(len, pieces)) == len(late):
            return await self._timed(columns)
        said: dict[int, Any] = {}
        for rows, future in early:
            if future is not None:
                said |= zip(rows, listed(await asyncio.wrap_future(future), len(rows)), strict=True)
        if late:
            said |= zip(late, listed(await self._timed(some(columns, late)), len(late)), strict=True)
        return [said[row] for row in range(len(said))]

    def _pieces(self, columns: Columns) -> list[list[int]]:
        return groups_of(columns["prompts"]) if self.by_group else [[*range(len(columns["prompts"]))]]
