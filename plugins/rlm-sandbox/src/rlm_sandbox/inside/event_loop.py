"""asyncio without sockets: the event loop waits on a `threading.Event` instead of a pipe and `epoll`."""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import selectors
import threading
from collections.abc import Coroutine
from typing import Any

_loop: asyncio.AbstractEventLoop | None = None


class Timer(selectors.SelectSelector):
    """A selector without files, which waits for its timeout or for `wake` from another thread."""

    def __init__(self) -> None:
        super().__init__()
        self._woken = threading.Event()

    def wake(self) -> None:
        """End the current or next wait."""
        self._woken.set()

    def select(self, timeout: float | None = None) -> list[Any]:
        """Wait; no file is ever ready."""
        if timeout is None or timeout > 0:
            self._woken.wait(timeout)
        self._woken.clear()
        return []


def install() -> None:
    """Give every event loop of this process and its forks a `Timer`. It makes no system call but waiting."""
    loop: Any = asyncio.selector_events.BaseSelectorEventLoop
    loop._make_self_pipe = loop._close_self_pipe = lambda self: None
    loop._write_to_self = lambda self: self._selector.wake()
    selectors.DefaultSelector = Timer  # type: ignore[misc, assignment]


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end, in the one loop of this process."""
    global _loop
    _loop = _loop or asyncio.new_event_loop()
    return _loop.run_until_complete(coroutine)
