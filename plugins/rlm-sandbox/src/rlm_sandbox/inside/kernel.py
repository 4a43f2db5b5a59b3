"""System calls without a Python function."""

from __future__ import annotations

import ctypes
import os
from typing import Any

_C = ctypes.CDLL(None, use_errno=True)

_SET_PDEATHSIG, _SET_DUMPABLE, _SET_SECCOMP, _DROP_BOUND, _SET_NO_NEW_PRIVS, _AMBIENT = 1, 4, 22, 24, 38, 47
_FILTER, _CLEAR_ALL, _SIGKILL = 2, 4, 9
_CAP_VERSION = 0x20080522


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, for any reason."""
    _prctl("PR_SET_PDEATHSIG", _SET_PDEATHSIG, _SIGKILL)


def closed_to_others() -> None:
    """Make this process non-dumpable, so that others of the same user cannot inspect it."""
    _prctl("PR_SET_DUMPABLE", _SET_DUMPABLE, 0)


def no_new_privileges() -> None:
    """Set no_new_privs; the kernel requires it before any filter."""
    _prctl("PR_SET_NO_NEW_PRIVS", _SET_NO_NEW_PRIVS, 1)


def drop_capabilities(capset: int) -> None:
    """Drop all capabilities: bounding set, ambient set and current ones. `capset` is the number of that system call."""
    for capability in range(64):
        if _C.prctl(_DROP_BOUND, capability, 0, 0, 0) < 0:
            break  # not permitted, or no further capability
    _C.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAP_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    system_call("capset", capset, header, nothing)


def install_filter(program: bytes) -> None:
    """Install a seccomp filter: from here on `program` decides every system call of this process and its threads."""

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]

    buffer = ctypes.create_string_buffer(program, len(program))
    descriptor = Program(len(program) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    _prctl("PR_SET_SECCOMP", _SET_SECCOMP, _FILTER, ctypes.byref(descriptor))


def system_call(name: str, number: int, *arguments: Any) -> int:
    """Make a system call by number.

    Raises:
        OSError: The call failed.
    """
    return _checked(name, _C.syscall(number, *arguments))


def _prctl(name: str, *arguments: Any) -> None:
    _checked(name, _C.prctl(*arguments, *[0] * (5 - len(arguments))))


def _checked(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return int(result)
