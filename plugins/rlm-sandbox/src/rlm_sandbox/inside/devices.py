"""Standard streams by their path, such as ``/dev/stdin``: copies of the descriptors. No path reaches the kernel."""

from __future__ import annotations

import builtins
import ctypes
import errno
import io
import os
from collections.abc import Callable
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


def install() -> None:
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
