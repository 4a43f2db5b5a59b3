"""Attempts of a reward to end the process: errors that belong to it, calls of `os._exit`, copies made by `os.fork`."""

from __future__ import annotations

import contextlib
import dis
import os
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from rlm_plugins.durable.stop_signals import Interrupted


class CallTimeout(TimeoutError):
    """No result within the timeout.

    Args:
        problem: The message.
        stack: Last calls at that moment, where known.
    """

    def __init__(self, problem: str, stack: str = "") -> None:
        super().__init__(problem)
        self.stack = stack


class CallInterrupted(BaseException):
    """Raised inside a call that exceeded its limit; no ``except Exception`` catches it."""


class ProcessExit(BaseException):
    """Raised in place of `os._exit` and `os.abort`, which end a process without a message."""


_RAISE = dis.opmap["RAISE_VARARGS"]


def belongs_to_reward(error: BaseException) -> bool:
    """Return True if an error raised during a call is a failure of the reward.

    Signals raise `Interrupted`, and outside of a run Ctrl-C raises KeyboardInterrupt at any line; one that a ``raise``
    statement raised is no Ctrl-C.
    """
    frame = _last_frame(error.__traceback__)
    if frame is None or isinstance(error, Exception | CallInterrupted | Interrupted):
        return not isinstance(error, CallInterrupted | Interrupted)
    if isinstance(error, KeyboardInterrupt):
        return frame.tb_frame.f_code.co_code[frame.tb_lasti] == _RAISE
    return True


def _last_frame(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


_running: list[int] = []
"""Process number of each call that is in progress."""


@contextlib.contextmanager
def exits_refused() -> Iterator[None]:
    """Raise :class:`ProcessExit` where the block calls `os._exit` or `os.abort`; end a copy of the process after it."""
    _install()
    pid = os.getpid()
    _running.append(pid)
    try:
        yield
    finally:
        if os.getpid() != pid:  # it forked, and the copy came back: two processes would train
            sys.stderr.write("rlm: a reward forked the process; the copy ends here\n")
            _originals["_exit"](1)
        _running.remove(pid)


_originals: dict[str, Callable[..., Any]] = {}


def _install() -> None:
    """Replace the functions, once: rewards may run in several threads."""
    for name in () if _originals else ("_exit", "abort"):
        _originals[name] = getattr(os, name)
        setattr(os, name, _refusing(name))


def _refusing(name: str) -> Callable[..., Any]:
    def end(*arguments: Any) -> Any:
        caller = str(sys._getframe(1).f_globals.get("__name__", ""))
        if os.getpid() in _running and not caller.startswith("rlm_plugins."):
            raise ProcessExit(f"it called os.{name}({', '.join(map(repr, arguments))})")
        return _originals[name](*arguments)

    return end
