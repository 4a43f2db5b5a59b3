"""Rewards that are asked before their answers are needed: what they take is spent while the model decodes and reads.

Nothing changes but when: an answer that was begun is taken only for the same question, word for word; whatever was not
begun is asked when it is needed.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any

from rlm_plugins.training.guard import Columns, groups_of, some
from rlm_plugins.training.scores import listed

Questions = Sequence[Any]
Ask = Callable[[Questions], Sequence[Any]]
"""Answers several questions at once, in order."""


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
    """A thread that asks: all the questions that have come up since it asked last, at once.

    Args:
        ask: May take long; what it raises is every asker's.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._waiting: SimpleQueue[tuple[Any, Future[Any]]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, question: Any) -> Future[Any]:
        """Takes a question; its answer comes."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True, name="rewards ahead")
            self._thread.start()
        answer: Future[Any] = Future()
        self._waiting.put((question, answer))
        return answer

    def _work(self) -> None:
        while True:
            pile = [self._waiting.get()]
            while not self._waiting.empty():
                pile.append(self._waiting.get())
            wanted = [(question, answer) for question, answer in pile if answer.set_running_or_notify_cancel()]
            try:
                for (_, answer), said in zip(wanted, self._ask([q for q, _ in wanted]), strict=True):
                    answer.set_result(said)
            except BaseException as error:
                for _, answer in wanted:
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

    def begin(self, columns: Columns, loop: asyncio.AbstractEventLoop) -> None:
        """Asks now what :meth:`ask` will be asked; of the whole groups in these columns."""
        for rows in self._pieces(columns):
            piece = some(columns, rows)
            self._begun.add(piece, partial(self._start, piece, loop))

    def _start(self, piece: Columns, loop: asyncio.AbstractEventLoop) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(self._answer(piece), loop)

    async def ask(self, columns: Columns) -> Any:
        """What the reward says; what has not been begun is asked about at once."""
        pieces = self._pieces(columns)
        early = [(rows, self._begun.take(some(columns, rows))) for rows in pieces]
        self._begun.forget()
        late = [row for rows, future in early if future is None for row in rows]
        if sum(map(len, pieces)) == len(late):
            return await self._answer(columns)
        said: dict[int, Any] = {}
        for rows, future in early:
            if future is not None:
                said |= zip(rows, listed(await asyncio.wrap_future(future), len(rows)), strict=True)
        if late:
            said |= zip(late, listed(await self._answer(some(columns, late)), len(late)), strict=True)
        return [said[row] for row in range(len(said))]

    def _pieces(self, columns: Columns) -> list[list[int]]:
        return groups_of(columns["prompts"]) if self.by_group else [[*range(len(columns["prompts"]))]]
