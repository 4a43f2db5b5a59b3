"""The few calls of the kernel that Python has no name for."""

from __future__ import annotations

import ctypes
import os
from typing import Any

_C = ctypes.CDLL(None, use_errno=True)

_SET_PDEATHSIG, _SET_DUMPABLE, _SET_SECCOMP, _DROP_BOUND, _SET_NO_NEW_PRIVS, _AMBIENT = 1, 4, 22, 24, 38, 47
_FILTER, _CLEAR_ALL, _SIGKILL = 2, 4, 9
_CAP_VERSION = 0x20080522


def die_with_parent() -> None:
    """The kernel kills this process when its parent ends, however it ends."""
    _prctl("PR_SET_PDEATHSIG", _SET_PDEATHSIG, _SIGKILL)


def closed_to_others() -> None:
    """Nobody of the same user may look into this process."""
    _prctl("PR_SET_DUMPABLE", _SET_DUMPABLE, 0)


def no_new_privileges() -> None:
    """No program it starts could gain rights; the kernel demands this before any filter."""
    _prctl("PR_SET_NO_NEW_PRIVS", _SET_NO_NEW_PRIVS, 1)


def drop_capabilities(capset: int) -> None:
    """Gives up root's powers one by one: what it may pass on, what it has. `capset` is the number of that call."""
    for capability in range(64):
        if _C.prctl(_DROP_BOUND, capability, 0, 0, 0) < 0:
            break  # it has none, or there is no such one
    _C.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAP_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    system_call("capset", capset, header, nothing)


def install_filter(program: bytes) -> None:
    """seccomp: from here on every system call of this process, and of its threads, passes `program`."""

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]

    buffer = ctypes.create_string_buffer(program, len(program))
    whole = Program(len(program) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    _prctl("PR_SET_SECCOMP", _SET_SECCOMP, _FILTER, ctypes.byref(whole))


def system_call(name: str, number: int, *arguments: Any) -> int:
    """Any call by its number.

    Raises:
        OSError: The kernel refuses it.
    """
    return _checked(name, _C.syscall(number, *arguments))


def _prctl(name: str, *arguments: Any) -> None:
    _checked(name, _C.prctl(*arguments, *[0] * (5 - len(arguments))))


def _checked(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return int(result)
