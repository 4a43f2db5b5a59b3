"""Modules that programs import: loaded once, in the zygote. The locks forbid reading files, hence later imports."""

from __future__ import annotations

import asyncio
import asyncio.selector_events
import builtins
import ctypes
import errno
import importlib
import io
import os
import selectors
import sys
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

_C = ctypes.CDLL(None, use_errno=True)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT

DEVICES = {
    "/dev/null": 2,  # standard error leads there in every process of the sandbox
    **{f"/dev/std{name}": number for number, name in enumerate(("in", "out", "err"))},
    **{f"{folder}/{number}": number for folder in ("/dev/fd", "/proc/self/fd") for number in range(3)},
}
"""Path → descriptor."""


def duplicate(descriptor: int) -> int:
    """Return a copy of a descriptor. `os.dup` of Python calls `fcntl`, which is forbidden."""
    copied: int = _C.dup(int(descriptor))
    if copied < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return copied


def install_streams() -> None:
    """Have `open`, `io.open`, `os.open` and `os.dup` serve the standard streams in this process and its forks."""
    builtins.open = io.open = _opener_of_files(io.open)  # type: ignore[assignment]
    os.open = _opener_of_descriptors(os.open)
    os.dup = duplicate


def _device(path: Any) -> int | None:
    """Return the descriptor of a standard stream; None for any other path."""
    if isinstance(path, int) or not isinstance(path, str | bytes | os.PathLike):
        return None
    return DEVICES.get(os.fsdecode(path))


def _no_file(path: Any) -> FileNotFoundError:
    """Return the error of reading a file: programs that try ``input.txt`` first expect this class."""
    return FileNotFoundError(errno.ENOENT, "No such file (the sandbox has no files)", path)


def _opener_of_files(real: Callable[..., Any]) -> Callable[..., Any]:
    def open(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        device = _device(file)
        if device is not None and opener is None:
            return real(duplicate(device), mode, buffering, encoding, errors, newline)
        try:
            return real(file, mode, buffering, encoding, errors, newline, closefd, opener)
        except PermissionError:
            if set(mode) & set("wax+"):
                raise
            raise _no_file(file) from None

    return open


def _opener_of_descriptors(real: Callable[..., int]) -> Callable[..., int]:
    def open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        device = _device(path)
        if device is not None:
            return duplicate(device)
        try:
            return real(path, flags, mode, dir_fd=dir_fd)
        except PermissionError:
            if flags & _WRITING:
                raise
            raise _no_file(path) from None

    return open


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


def install_event_loop() -> None:
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


_MODULES = """
abc argparse array ast asyncio atexit base64 binascii bisect bz2 calendar cmath cmd codecs collections.abc colorsys
concurrent.futures.thread configparser contextlib contextvars copy csv ctypes dataclasses datetime decimal difflib dis
doctest enum errno fileinput fractions functools gc getpass glob graphlib hashlib heapq hmac html.parser inspect io
ipaddress itertools json linecache locale logging math mmap multiprocessing numbers operator os.path pathlib pickle
platform pprint profile queue random re reprlib resource sched secrets select selectors shlex signal socket stat
statistics string stringprep struct subprocess sys tempfile textwrap threading time timeit token tokenize tomllib
traceback tracemalloc types typing unicodedata unittest.mock urllib.parse uuid warnings weakref xml.etree.ElementTree
zlib zoneinfo _strptime encodings.ascii encodings.latin_1 encodings.utf_16 encodings.idna encodings.hex_codec
"""
MODULES = tuple(_MODULES.split())
"""Each adds to the cost of every fork, which has to map the memory."""


def load(wanted: Sequence[str], paths: Sequence[str]) -> list[str]:
    """Import the usual modules and the `wanted` ones, which may be under `paths`; then remove all import paths.

    Returns:
        The names in `MODULES` that this Python does not have.

    Raises:
        ImportError: A wanted module cannot be imported.
    """
    missing = []
    for name in MODULES:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    sys.path.extend(paths)
    for name in wanted:
        importlib.import_module(name)
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # as `site` would have done
    install_streams()
    install_event_loop()
    sys.path.clear()
    sys.path_importer_cache.clear()
    sys.argv[:] = [""]
    sys.executable = ""
    return missing
