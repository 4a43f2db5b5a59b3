"""Watchdog over calls of rewards: interrupts one that lasts too long, and ends the process if that is impossible."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rlm_plugins.rewards.process_exit import CallInterrupted, CallTimeout

T = TypeVar("T", bound=Any)
DEFAULT = 3600.0
"""Seconds one call may take if the recipe sets no `timeout`."""
GRACE = 60.0
"""Seconds beyond its limit after which a process is ended whose interpreter is blocked."""
RETRY = 2.0
"""Seconds until a call that caught its interruption is interrupted again."""
_SIGNAL = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else None
"""It interrupts a system call of the main thread; nothing else sends it."""


@dataclass(eq=False)
class _Call:
    deadline: float
    thread: int = field(default_factory=threading.get_ident)
    stack: str = ""
    is_done: bool = False


class _Watchdog:
    """One thread, which sleeps until the next deadline."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._wakes_at = float("inf")

    def add(self, call: _Call) -> None:
        """Watch a call; the thread is woken only if it sleeps beyond the deadline."""
        with self._changed:
            self._calls.append(call)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, daemon=True, name="reward watchdog")
                self._thread.start()
            if call.deadline < self._wakes_at:
                self._changed.notify()

    def remove(self, call: _Call) -> None:
        """Stop watching a call, and cancel an interruption that has not reached it."""
        with self._changed:
            self._calls.remove(call)
            if call.stack:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(call.thread), None)

    def is_due(self, thread: int) -> bool:
        """Return True if a call of this thread has been interrupted and is still watched."""
        return any(call.stack and call.thread == thread and not call.is_done for call in self._calls)

    def _run(self) -> None:
        with self._changed:
            while True:
                now = time.monotonic()
                for call in [call for call in self._calls if call.deadline <= now]:
                    call.stack = call.stack or stack_of(call.thread)
                    call.deadline = now + RETRY
                    interrupt(call.thread)
                self._wakes_at = min((call.deadline for call in self._calls), default=float("inf"))
                self._changed.wait(None if self._wakes_at == float("inf") else max(0.0, self._wakes_at - now))


_watchdog = _Watchdog()


def interrupt(thread: int) -> None:
    """Raise :class:`CallInterrupted` in a thread; in the main thread also out of a system call such as a sleep."""
    if _SIGNAL is not None and thread == threading.main_thread().ident and _installed:
        signal.pthread_kill(thread, _SIGNAL)
    else:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(CallInterrupted))


_installed: list[bool] = []


def _install() -> None:
    """Set the handler of the signal, once and in the main thread."""
    if _SIGNAL is None or _installed or threading.current_thread() is not threading.main_thread():
        return

    def handler(*_: object) -> None:
        if _watchdog.is_due(threading.get_ident()):
            raise CallInterrupted

    signal.signal(_SIGNAL, handler)
    _installed.append(True)


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Interrupt the block after its limit.

    A call into C that holds the interpreter's lock (a regular expression that backtracks, a huge power) cannot be
    interrupted. `GRACE` later the process then ends, with a traceback that shows the call.

    Raises:
        CallTimeout: It took too long; with the stack at that moment.
    """
    _install()
    call = _Call(time.monotonic() + seconds)
    with exit_if_blocked(seconds + GRACE):
        _watchdog.add(call)
        try:
            try:
                yield
            finally:
                call.is_done = True  # from here on it is not interrupted
        except CallInterrupted:
            raise CallTimeout(f"no answer within {seconds:g} s", call.stack) from None
        finally:
            _watchdog.remove(call)


def stack_of(thread: int | None) -> str:
    """Return the last calls of a thread as text; empty if it has ended."""
    frame = sys._current_frames().get(thread or 0)
    return "".join(traceback.format_stack(frame)[-3:]).rstrip() if frame is not None else ""


def with_name(name: str, function: T) -> T:
    """Return a function whose frame is called `name` in tracebacks, also in those of a blocked interpreter."""
    function.__code__ = function.__code__.replace(co_name=name, co_qualname=name)
    return function


_limits: list[float] = []
"""Times at which the process is ended: faulthandler has one timer, for all threads."""
_lock = threading.Lock()


@contextlib.contextmanager
def exit_if_blocked(seconds: float) -> Iterator[None]:
    """End the process with a traceback of all threads if the block takes longer and nothing else could end it."""
    limit = time.monotonic() + seconds
    with _lock:
        _limits.append(limit)
        _set_timer()
    try:
        yield
    finally:
        with _lock:
            _limits.remove(limit)
            _set_timer()


def _set_timer() -> None:
    if not _limits:
        faulthandler.cancel_dump_traceback_later()
        return
    with contextlib.suppress(Exception):  # without stderr there is no such protection
        seconds = max(1.0, min(_limits) - time.monotonic())
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)  # type: ignore[arg-type]
