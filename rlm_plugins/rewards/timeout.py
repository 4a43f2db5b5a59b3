"""At most so many seconds, for a function that may never come back."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import faulthandler
import queue
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE = 60.0
"""Seconds beyond the limit until a process that cannot even look at its clock is ended."""


class Late(TimeoutError):
    """No answer in time."""


def within(seconds: float, call: Callable[[], T]) -> T:
    """`call()`, in a thread of its own; who is late is left behind there, since Python can end no thread.

    A call into C that never lets go of the interpreter (a regular expression that backtracks, a huge power) stops the
    clock as well: `PATIENCE` later the process ends with a traceback that shows where it hung.

    Raises:
        Late: It took longer.
    """
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put((call(), None))
        except BaseException as error:  # also SystemExit, which would end the thread without a word
            answers.put((None, error))

    context = contextvars.copy_context()
    with _watched(seconds + PATIENCE):
        threading.Thread(target=lambda: context.run(work), daemon=True).start()
        try:
            answer, error = answers.get(timeout=seconds)
        except queue.Empty:
            raise Late(f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return answer  # type: ignore[return-value]


async def within_async(seconds: float, call: Coroutine[Any, Any, T]) -> T:
    """The same for what is awaited: who is late is cancelled, and not waited for.

    Raises:
        Late: It took longer.
    """
    task = asyncio.ensure_future(call)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        task.cancel()
        raise Late(f"no answer within {seconds:g} s")
    return task.result()


@contextlib.contextmanager
def _watched(seconds: float) -> Iterator[None]:
    with contextlib.suppress(Exception):  # no stderr to write to: then without it
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)  # type: ignore[arg-type]
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
