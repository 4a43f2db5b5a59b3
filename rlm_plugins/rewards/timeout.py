"""Timeout for a call that may never return."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rlm_plugins.rewards.process_exit import CallTimeout
from rlm_plugins.rewards.watchdog import GRACE, exit_if_blocked, interrupt, stack_of

__all__ = ["CallTimeout", "await_with_timeout", "call_with_timeout"]

T = TypeVar("T")


def call_with_timeout(seconds: float, call: Callable[[], T]) -> T:
    """Return `call()`, run in a thread; one that times out is interrupted at its next line of Python.

    A call into C that holds the interpreter's lock blocks the timeout as well; see :mod:`rlm_plugins.rewards.watchdog`.

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
    thread = threading.Thread(target=lambda: context.run(work), daemon=True)
    with exit_if_blocked(seconds + GRACE):
        thread.start()
        try:
            result, error = results.get(timeout=seconds)
        except queue.Empty:
            stack = stack_of(thread.ident)
            interrupt(thread.ident or 0)
            raise CallTimeout(f"no answer within {seconds:g} s", stack) from None
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
