"""seccomp filters: a small program in the kernel that checks every system call and allows only known ones.

A filter is classic BPF: instructions (code, jump if true, jump if false, constant) on a struct. The struct has the
number of the call at 0, the processor at 4, and the six arguments from 16, each in 8 bytes. Jumps count the
instructions to skip.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from rlm_sandbox.inside.syscalls import ALLOWED, NEVER_EXECUTABLE, ONLY_SELF, Machine

LOAD, EQUAL, AT_LEAST, ANY_BIT, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
ALLOW, KILL = 0x7FFF0000, 0x80000000
REFUSE, UNKNOWN = 0x00050000 | 1, 0x00050000 | 38
"""The call fails with EPERM; with ENOSYS, so that the C library tries the older one."""

NUMBER, PROCESSOR = 0, 4
FIRST, THIRD = 16, 32
"""Offsets of arguments: their lower halves, which are all the kernel uses of these."""

_X32 = 0x40000000
_PROT_EXEC = 4
_THREAD = 0x00000100 | 0x00000800 | 0x00010000
"""CLONE_VM | CLONE_SIGHAND | CLONE_THREAD: a thread, which dies with its process."""
_NAMESPACES = 0x00020000 | 0x7E000000 | 0x00000080
"""CLONE_NEWNS and its kin."""

_PLACEHOLDER_PID = 0x7EADBEE5
"""An impossible process id (the kernel's largest is 2²²), replaced by the real one."""

Instruction = tuple[int, int, int, int]


def rules(machine: Machine, pid: int) -> list[Instruction]:
    """Return the filter of a process with this `pid`: calls that are not allowed fail with EPERM.

    A call by another processor's table (32-bit on a 64-bit kernel) kills, since its numbers have other meanings.
    """
    number = machine.numbers
    instructions: list[Instruction] = [(LOAD, 0, 0, PROCESSOR), (EQUAL, 1, 0, machine.audit), (RETURN, 0, 0, KILL)]
    instructions += [(LOAD, 0, 0, NUMBER), (AT_LEAST, 0, 1, _X32), (RETURN, 0, 0, KILL)]
    for name in ALLOWED:
        if name in number:
            instructions += [(EQUAL, 0, 1, number[name]), (RETURN, 0, 0, ALLOW)]
    instructions += [(EQUAL, 0, 1, number["clone3"]), (RETURN, 0, 0, UNKNOWN)]
    for name in NEVER_EXECUTABLE:
        instructions += _when(number[name], [(LOAD, 0, 0, THIRD), (ANY_BIT, 1, 0, _PROT_EXEC)])
    threads = [(LOAD, 0, 0, FIRST), (AND, 0, 0, _THREAD | _NAMESPACES), (EQUAL, 0, 1, _THREAD)]
    instructions += _when(number["clone"], threads)
    for name in ONLY_SELF:
        instructions += _when(number[name], [(LOAD, 0, 0, FIRST), (EQUAL, 0, 1, pid)])
    instructions += _when(number["prlimit64"], [(LOAD, 0, 0, FIRST), (EQUAL, 0, 1, 0)])
    return [*instructions, (RETURN, 0, 0, REFUSE)]


def _when(number: int, test: list[Instruction]) -> list[Instruction]:
    """Return a rule that allows one call if its `test`, whose last jump skips the ALLOW, holds, else rejects it."""
    block = [*test, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, REFUSE)]
    return [(EQUAL, 0, len(block), number), *block]


@lru_cache(maxsize=2)
def _template(machine: Machine) -> bytes:
    return pack_filter(rules(machine, _PLACEHOLDER_PID))


def of_process(machine: Machine, pid: int) -> bytes:
    """Return the packed filter of a process: a cached template with its process id."""
    return _template(machine).replace(struct.pack("=I", _PLACEHOLDER_PID), struct.pack("=I", pid))


def pack_filter(program: list[Instruction]) -> bytes:
    """Pack a filter in the kernel's format."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
