"""The role of a script: a program that reads standard input and writes standard output."""

from __future__ import annotations

import atexit
import os
import stat
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, NoReturn

from rlm_sandbox.inside.channel import Channel
from rlm_sandbox.inside.errors import error_message

_STREAMS = ((0, "r"), (1, "w"))
WRITTEN = 4
"""Second descriptor of the standard output: the program may close 1, as `open(1, "w")` does."""


def prepare(text: str) -> None:
    """Put `text` into descriptor 0 and an empty file into 1. Both are in memory; RLIMIT_FSIZE limits 1."""
    for descriptor, data in ((0, text.encode("utf-8", "surrogatepass")), (1, b"")):
        memory = os.memfd_create("sample")
        os.dup2(memory, descriptor)
        os.close(memory)
        while data:
            data = data[os.write(descriptor, data) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(1, WRITTEN)


def run_script(channel: Channel, job: dict[str, Any]) -> None:
    """Run the program as ``__main__`` and send its output, or its error."""
    _connect()
    os._exit = _leave_with_output(channel, os._exit)  # type: ignore[assignment]
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    stdout, flush, join, run_exit_functions = sys.stdout, _flush, _join, atexit._run_exitfuncs
    try:
        try:
            exec(compile(job["source"], "<program>", "exec", dont_inherit=True), vars(main))
        except SystemExit as error:
            if not _is_success(error.code):
                raise
        join()
        run_exit_functions()
        flush(stdout)
        if sys.stdout is not stdout:  # the program replaced it
            flush(sys.stdout)
    except BaseException as error:
        channel.send(error_message(error))
        return
    channel.send({"value": _output()})


def _connect() -> None:
    """Open Python's standard streams on the descriptors of `prepare`."""
    atexit._clear()
    stdin, stdout = (
        os.fdopen(n, mode, encoding="utf-8", errors="surrogateescape", closefd=False) for n, mode in _STREAMS
    )
    sys.stdin = sys.__stdin__ = stdin  # type: ignore[misc,assignment]
    sys.stdout = sys.__stdout__ = stdout  # type: ignore[misc,assignment]
    os.fstat = _size_only  # type: ignore[assignment]


def _size_only(descriptor: int) -> os.stat_result:
    """Return the size, which fast readers need from `os.fstat`; the real call may use a path, which is forbidden."""
    position = os.lseek(descriptor, 0, os.SEEK_CUR)
    size = os.lseek(descriptor, 0, os.SEEK_END)
    os.lseek(descriptor, position, os.SEEK_SET)
    return os.stat_result((stat.S_IFREG | 0o600, 0, 0, 1, 0, 0, size, 0, 0, 0))


def _is_success(code: object) -> bool:
    return code is None or (type(code) in (int, bool) and code == 0)


def _leave_with_output(channel: Channel, leave: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    """Return an `os._exit` that sends the output before: what is in descriptor 1, as the real one flushes nothing."""

    def _exit(status: int) -> NoReturn:
        try:
            channel.send({"value": _output()} if _is_success(status) else error_message(SystemExit(status)))
        finally:
            leave(0)

    return _exit


def _flush(stream: Any) -> None:
    try:
        stream.flush()
    except ValueError:  # the program closed or detached it, which flushed it
        return


def _join() -> None:
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def _output() -> str:
    size = os.lseek(WRITTEN, 0, os.SEEK_END)
    os.lseek(WRITTEN, 0, os.SEEK_SET)
    data = b""
    while len(data) < size and (chunk := os.read(WRITTEN, size - len(data))):
        data += chunk
    return data.decode("utf-8", "replace")
