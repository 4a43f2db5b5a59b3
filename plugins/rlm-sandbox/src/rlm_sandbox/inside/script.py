"""The role of a script: a program that reads its standard input and writes its standard output."""

from __future__ import annotations

import atexit
import os
import stat
import sys
import threading
import types
from typing import Any

from rlm_sandbox.inside.channel import Channel, told

_STREAMS = ((0, "r"), (1, "w"))


def prepare(text: str) -> None:
    """Descriptor 0 holds `text`, descriptor 1 nothing yet. Both are memory; what 1 may hold is limited by FSIZE."""
    for descriptor, data in ((0, text.encode("utf-8", "surrogatepass")), (1, b"")):
        memory = os.memfd_create("sample")
        os.dup2(memory, descriptor)
        os.close(memory)
        while data:
            data = data[os.write(descriptor, data) :]
        os.lseek(descriptor, 0, os.SEEK_SET)


def run_script(channel: Channel, job: dict[str, Any]) -> None:
    """Runs the program as ``__main__`` and sends what it wrote, or why it failed."""
    _connect()
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    flush, join, last_words = sys.stdout.flush, _join, atexit._run_exitfuncs
    try:
        try:
            exec(compile(job["source"], "<program>", "exec"), vars(main))
        except SystemExit as error:
            if error.code not in (None, 0):
                raise
        join()
        last_words()
        flush()
        if sys.stdout is not sys.__stdout__:  # it may have put its own in place
            sys.stdout.flush()
    except BaseException as error:
        channel.send(told(error))
        return
    channel.send({"value": _written()})


def _connect() -> None:
    """The standard streams of Python, on the descriptors that `prepare` made."""
    atexit._clear()
    reads, writes = (
        os.fdopen(n, mode, encoding="utf-8", errors="surrogateescape", closefd=False) for n, mode in _STREAMS
    )
    sys.stdin = sys.__stdin__ = reads  # type: ignore[misc,assignment]
    sys.stdout = sys.__stdout__ = writes  # type: ignore[misc,assignment]
    os.fstat = _size_only  # type: ignore[assignment]


def _size_only(descriptor: int) -> os.stat_result:
    """What fast readers ask `os.fstat` for; the C library's own would name a path, which is not allowed."""
    place = os.lseek(descriptor, 0, os.SEEK_CUR)
    size = os.lseek(descriptor, 0, os.SEEK_END)
    os.lseek(descriptor, place, os.SEEK_SET)
    return os.stat_result((stat.S_IFREG | 0o600, 0, 0, 1, 0, 0, size, 0, 0, 0))


def _join() -> None:
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def _written() -> str:
    size = os.lseek(1, 0, os.SEEK_END)
    os.lseek(1, 0, os.SEEK_SET)
    data = b""
    while len(data) < size and (piece := os.read(1, size - len(data))):
        data += piece
    return data.decode("utf-8", "replace")
