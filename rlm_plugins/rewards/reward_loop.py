"""Event loop of one asynchronous reward in a separate thread: a blocking reward blocks no other one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rlm_plugins.rewards.timeout import CallTimeout
from rlm_plugins.rewards.watchdog import DEFAULT, GRACE, exit_if_blocked, interrupt, stack_of

T = TypeVar("T")
BLOCKED = 5.0
"""Seconds beyond the timeout after which a loop that runs none of its callbacks counts as blocked."""
_HINT = "await instead of blocking: an asynchronous client, `asyncio.sleep`, `asyncio.to_thread`"


class LoopBlocked(CallTimeout):
    """An asynchronous reward held its event loop."""

    hint = _HINT


class RewardLoop:
    """Event loop of one reward; started when it is first needed, replaced when it is blocked.

    Args:
        name: Label of the reward, for the thread.
        seconds: Timeout of one call; None: the default limit.
    """

    def __init__(self, name: str, seconds: float | None) -> None:
        self._name, self._seconds = name, DEFAULT if seconds is None else seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._alive_at = 0.0

    async def run(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of `call()`, awaited in the thread of the loop.

        Raises:
            LoopBlocked: The loop ran none of its callbacks for the timeout and `BLOCKED` seconds.
        """
        loop = self._running_loop()
        self._alive_at = time.monotonic()
        limit = self._seconds + BLOCKED
        future = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(), loop))
        with exit_if_blocked(limit + GRACE):
            while not (await asyncio.wait({future}, timeout=min(1.0, limit / 4)))[0]:
                if time.monotonic() - self._alive_at > limit:
                    raise self._discard_loop()
                loop.call_soon_threadsafe(self._beat)
        return future.result()

    def _beat(self) -> None:
        self._alive_at = time.monotonic()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            loop = asyncio.new_event_loop()
            self._loop = loop
            self._thread = threading.Thread(target=loop.run_forever, daemon=True, name=f"reward {self._name}")
            self._thread.start()
        return self._loop

    def _discard_loop(self) -> LoopBlocked:
        """Discard the loop, interrupt its thread, and return the error; the next call creates a new loop."""
        thread = self._thread.ident if self._thread is not None else 0
        stack = stack_of(thread)
        interrupt(thread or 0)
        self._loop = self._thread = None
        return LoopBlocked(f"no answer within {self._seconds:g} s: it blocked its event loop", stack)
