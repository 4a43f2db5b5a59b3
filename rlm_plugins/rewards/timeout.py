"""Timeout for a call that may never return."""

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
GRACE = 60.0
"""Seconds beyond the timeout after which a process is ended whose interpreter is blocked."""


class CallTimeout(TimeoutError):
    """No result within the timeout."""


def call_with_timeout(seconds: float, call: Callable[[], T]) -> T:
    """Return `call()`, run in a thread; a call that times out keeps its thread, since Python can end none.

    A call into C that holds the interpreter's lock (a regular expression that backtracks, a huge power) blocks the
    timeout as well. `GRACE` later the process then ends, with a traceback that shows where it was blocked.

    Raises:
        CallTimeout: There was no result in time.
    """
    results: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            results.put((call(), None))
        except BaseException as error:  # also SystemExit, which would end the thread silently
            results.put((None, error))

    context = contextvars.copy_context()
    with _exit_if_blocked(seconds + GRACE):
        threading.Thread(target=lambda: context.run(work), daemon=True).start()
        try:
            result, error = results.get(timeout=seconds)
        except queue.Empty:
            raise CallTimeout(f"no answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]


async def await_with_timeout(seconds: float, call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine; after the timeout it is canceled, without waiting for it.

    Raises:
        CallTimeout: There was no result in time.
    """
    task = asyncio.ensure_future(call)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        task.cancel()
        raise CallTimeout(f"no answer within {seconds:g} s")
    return task.result()


@contextlib.contextmanager
def _exit_if_blocked(seconds: float) -> Iterator[None]:
    with contextlib.suppress(Exception):  # without stderr there is no such protection
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)  # type: ignore[arg-type]
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
