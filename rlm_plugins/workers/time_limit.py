"""Time limit of a call in this process: it is interrupted, and if that is impossible the process ends.

A call that must be killed instead runs in a worker process (:mod:`rlm_plugins.workers.pool`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import inspect
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NoReturn, TypeVar

from rlm_plugins.durable.stop_signals import Interrupted

T = TypeVar("T")
DEFAULT = 3600.0
"""Seconds one call of a reward may take if the recipe sets no `timeout`."""
GRACE = 60.0
"""Seconds beyond its limit after which a process is ended whose interpreter is blocked."""
RETRY = 2.0
"""Seconds until a call that caught its interruption is interrupted again."""
BLOCKED = 5.0
"""Seconds beyond the limit of its calls after which an event loop counts as blocked."""
_SIGNAL = signal.SIGRTMIN + 7 if hasattr(signal, "SIGRTMIN") else None
"""It interrupts a system call of the main thread; nothing else sends it."""


class CallTimeout(TimeoutError):
    """No result within the limit; `stack` has the last calls at that moment, where known."""

    def __init__(self, problem: str, stack: str = "", hint: str = "") -> None:
        super().__init__(problem)
        self.stack, self.hint = stack, hint


class CallInterrupted(BaseException):
    """Raised inside a call that exceeded its limit; no ``except Exception`` catches it."""


def is_of_call(error: BaseException) -> bool:
    """Return True if the called code raised an error; False for a signal, Ctrl-C, or an interruption by the limit."""
    return not isinstance(error, CallInterrupted | Interrupted)


class _Call:
    """A call in progress. `stack` is empty until it is late."""

    def __init__(self) -> None:
        self.thread, self.stack = threading.get_ident(), ""
        self.is_done, self._lock = threading.Event(), threading.Lock()

    def watch(self, seconds: float) -> None:
        """Interrupt the call after `seconds`, and again until it ends."""
        while not self.is_done.wait(seconds):
            with self._lock:
                if not self.is_done.is_set():
                    self.stack = self.stack or _stack_of(self.thread) or "?"
                    _interrupt(self.thread)
            seconds = RETRY

    def end(self) -> None:
        """End the watch, and receive an interruption that has not reached the call."""
        self.is_done.set()
        with self._lock, contextlib.suppress(CallInterrupted):
            if self.stack:  # after one that is canceled, the next function that a debugger traces would never begin
                _raise_in(self.thread)
                while True:
                    time.sleep(0)


_calls: list[_Call] = []


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt the block after `seconds`.

    In the main thread a system call is interrupted as well; in another one, the block is interrupted at its next line
    of Python. A call into C that holds the interpreter's lock (a regular expression that backtracks, a huge power)
    cannot be interrupted. `GRACE` later the process then ends, with a traceback that shows the call.

    Ctrl-C raises `Interrupted` in the block: a KeyboardInterrupt of any other class was raised by the block itself.

    Raises:
        CallTimeout: It took too long, even if it suppressed its interruption; with the stack at that moment.
    """
    call = _Call()
    watch = threading.Thread(target=call.watch, args=(seconds,), daemon=True, name="time limit")
    _calls.append(call)
    with _signal_handlers(), _exit_if_blocked(seconds + GRACE):
        try:
            try:
                watch.start()  # on a busy machine the limit may be over before the block begins
                yield
            finally:
                call.is_done.set()  # from here on it is not interrupted
        except BaseException as error:
            if not call.stack or isinstance(error, Interrupted):
                raise
        finally:
            call.end()
            _calls.remove(call)
    if call.stack:
        raise CallTimeout(f"no answer within {seconds:g} s", call.stack)


@contextlib.contextmanager
def _signal_handlers() -> Iterator[None]:
    """Handle the signal of late calls, and Ctrl-C where nothing else does; in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if _SIGNAL is not None and signal.getsignal(_SIGNAL) is not _raise_if_late:
        signal.signal(_SIGNAL, _raise_if_late)
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, _raise_interrupted)
    try:
        yield
    finally:
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _raise_if_late(*_: object) -> None:
    if any(call.stack and not call.is_done.is_set() and call.thread == threading.get_ident() for call in _calls):
        raise CallInterrupted


def _raise_interrupted(number: int, _: object) -> NoReturn:
    raise Interrupted(number)


def _interrupt(thread: int) -> None:
    """Raise :class:`CallInterrupted` in a thread; in the main thread also out of a system call such as a sleep."""
    if _SIGNAL is not None and thread == threading.main_thread().ident and signal.getsignal(_SIGNAL) is _raise_if_late:
        signal.pthread_kill(thread, _SIGNAL)
    else:
        _raise_in(thread)


def _raise_in(thread: int) -> None:
    """Raise :class:`CallInterrupted` in a thread at its next line of Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(CallInterrupted))


def _stack_of(thread: int | None) -> str:
    """Return the last calls of a thread as text; empty if it has ended."""
    with contextlib.suppress(Exception):  # the thread runs on meanwhile; its interruption must not depend on this
        return "".join(traceback.format_stack(sys._current_frames()[thread or 0])[-3:]).rstrip()
    return ""


_limits: list[float] = []
"""Times at which the process is ended: faulthandler has one timer, for all threads."""
_lock = threading.Lock()


@contextlib.contextmanager
def _exit_if_blocked(seconds: float) -> Iterator[None]:
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


def resolved(result: Any) -> Any:
    """Return the result of a call, awaited in an event loop of its own where it is a coroutine."""

    async def awaited() -> Any:
        return await result

    return asyncio.run(awaited()) if inspect.isawaitable(result) else result


async def await_within(seconds: float, call: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine; after `seconds` it is canceled, without waiting for it.

    Raises:
        CallTimeout: There was no result in time.
    """
    task = asyncio.ensure_future(call)
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if not done:
        task.cancel()
        raise CallTimeout(f"no answer within {seconds:g} s")
    return task.result()


class LoopThread:
    """Event loop in a thread of its own, so that calls that block it block nothing else.

    It is started when it is first needed, and replaced when it is blocked.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    async def run(self, call: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> T:
        """Return the result of `call()`, awaited in the thread of the loop.

        Args:
            call: Returns a coroutine that ends within `seconds` unless the loop is blocked (:func:`await_within`).
            seconds: Limit of the coroutine.

        Raises:
            CallTimeout: There was no result `BLOCKED` seconds after the limit.
        """
        loop = self._running_loop()
        future = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call(), loop))
        with _exit_if_blocked(seconds + BLOCKED + GRACE):
            done, _ = await asyncio.wait({future}, timeout=seconds + BLOCKED)
        if not done:
            raise self._discard_loop(seconds)
        return future.result()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            loop = self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=loop.run_forever, daemon=True, name=self._name)
            self._thread.start()
        return self._loop

    def _discard_loop(self, seconds: float) -> CallTimeout:
        """Discard the loop, interrupt its thread, and return the error; the next call creates a new loop."""
        thread = self._thread.ident if self._thread is not None else 0
        stack = _stack_of(thread)
        _interrupt(thread or 0)
        self._loop = self._thread = None
        hint = "await instead of blocking: an asynchronous client, `asyncio.sleep`, `asyncio.to_thread`"
        return CallTimeout(f"no answer within {seconds:g} s: it blocked its event loop", stack, hint)
