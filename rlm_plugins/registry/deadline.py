"""Calls of plugin code under a deadline: a hang, an exit or any exception becomes an ImportError."""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn


def call_with_deadline(call: Callable[[], Any], seconds: float) -> Any:
    """Return `call()`, run in a thread; it prints to stderr, as stdout may be JSON, and its working directory is kept.

    Raises:
        BaseException: As `call` raised it.
        ImportError: It took too long, called `os._exit` or raised KeyboardInterrupt.
        KeyboardInterrupt: Ctrl-C, in the calling thread.
    """
    results: list[tuple[Any, BaseException | None]] = []

    def work() -> None:
        try:
            results.append((call(), None))
        except BaseException as error:
            results.append((None, error))

    thread = threading.Thread(target=work, daemon=True, name="import of a plugin")
    with _without_exit(), contextlib.redirect_stdout(_ToStderr()), _restored_cwd():
        thread.start()
        thread.join(seconds)
    if not results:
        frame = sys._current_frames().get(thread.ident or 0)
        place = "".join(traceback.format_stack(frame)[-1:]).strip() if frame is not None else ""
        # ends a loop at its next line; a call into C keeps its thread
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
        raise ImportError(f"its import takes longer than {seconds:g} s: {place}")
    value, error = results[0]
    if isinstance(error, KeyboardInterrupt):
        raise ImportError("its import raised KeyboardInterrupt") from error
    if error is not None:
        raise error
    return value


@contextlib.contextmanager
def _without_exit() -> Iterator[None]:
    """Raise ImportError where `os._exit` is called in this process."""

    def refuse(status: int = 0) -> NoReturn:
        if os.getpid() != pid:  # a process that the plugin started may end
            exit_process(status)
        raise ImportError(f"its import called os._exit({status})")

    exit_process, pid = os._exit, os.getpid()
    os._exit = refuse
    try:
        yield
    finally:
        os._exit = exit_process


class _ToStderr(io.TextIOBase):
    """Stream that writes to stderr; closing it closes nothing else."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text) if sys.stderr is not None else len(text)


@contextlib.contextmanager
def _restored_cwd() -> Iterator[None]:
    """Restore the working directory after the block: paths in recipes and on the command line are relative to it."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:  # it was removed
        yield
        return
    try:
        yield
    finally:
        os.chdir(folder)
