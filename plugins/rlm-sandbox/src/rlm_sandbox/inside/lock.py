"""The locks, in order. The zygote gives up everything it does not need to fork; each sample gives up the rest."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
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


_CREATE, _RESTRICT = 444, 446
"""The numbers are the same on every processor."""
_FILES = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}
_FILES_NOW = 0xFFFF
_NETWORK, _SCOPES = 3, 3
"""TCP bind and connect (from version 4); signals and abstract sockets to the outside (from version 6)."""


def version() -> int:
    """Return the kernel's Landlock version; 0: unsupported or disabled."""
    try:
        return system_call("landlock_create_ruleset", _CREATE, None, ctypes.c_size_t(0), 1)
    except OSError:
        return 0


def give_up_files() -> int:
    """Deny this process and its children access to all files. Returns `version`; 0: no effect."""
    abi = version()
    if not abi:
        return 0
    fields = [_FILES.get(abi, _FILES_NOW)]
    fields += [_NETWORK] if abi >= 4 else []
    fields += [_SCOPES] if abi >= 6 else []
    handled = ctypes.create_string_buffer(struct.pack(f"={len(fields)}Q", *fields), 8 * len(fields))
    rules = system_call("landlock_create_ruleset", _CREATE, handled, ctypes.c_size_t(8 * len(fields)), 0)
    system_call("landlock_restrict_self", _RESTRICT, rules, 0)
    os.close(rules)
    return abi


_ALLOWED = (
    "read write readv writev pread64 pwrite64 lseek fstat close dup poll ppoll select pselect6 "  # on open descriptors
    "munmap mremap madvise brk "  # memory
    "futex sched_yield set_robust_list set_tid_address rseq membarrier gettid "  # threads
    "rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack restart_syscall "  # signals
    "clock_gettime clock_getres clock_nanosleep nanosleep gettimeofday time getitimer setitimer alarm times "  # time
    "getpid getuid geteuid getgid getegid getrusage sched_getaffinity getrandom exit exit_group"
)
ALLOWED = tuple(_ALLOWED.split())
"""Allowed with any arguments. `fcntl` is excluded: F_SETOWN and F_SETSIG could send SIGKILL to the user's processes."""

NEVER_EXECUTABLE = ("mmap", "mprotect")
"""Allowed for memory that is not executable, which excludes generated machine code."""
ONLY_SELF = ("kill", "tgkill")
"""Allowed with the own process id as first argument."""


@dataclass(frozen=True, eq=False)
class Machine:
    """System calls of one kind of processor.

    Args:
        audit: Its identifier in seccomp.
        numbers: System call → number, where it exists.
    """

    audit: int
    numbers: dict[str, int]


_X86 = {
    "read": 0, "write": 1, "close": 3, "fstat": 5, "poll": 7, "lseek": 8, "mmap": 9, "mprotect": 10, "munmap": 11,
    "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "pread64": 17, "pwrite64": 18,
    "readv": 19, "writev": 20, "select": 23, "sched_yield": 24, "mremap": 25, "madvise": 28, "dup": 32,
    "nanosleep": 35, "getitimer": 36, "alarm": 37, "setitimer": 38, "getpid": 39, "clone": 56, "exit": 60, "kill": 62,
    "gettimeofday": 96, "getrusage": 98, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107, "getegid": 108,
    "capset": 126, "sigaltstack": 131, "gettid": 186, "time": 201, "futex": 202, "sched_getaffinity": 204,
    "set_tid_address": 218, "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229, "clock_nanosleep": 230,
    "exit_group": 231, "tgkill": 234, "pselect6": 270, "ppoll": 271, "set_robust_list": 273, "prlimit64": 302,
    "getrandom": 318, "membarrier": 324, "rseq": 334, "clone3": 435,
}  # fmt: skip
_ARM = {
    "dup": 23, "close": 57, "lseek": 62, "read": 63, "write": 64, "readv": 65, "writev": 66, "pread64": 67,
    "pwrite64": 68, "pselect6": 72, "ppoll": 73, "fstat": 80, "capset": 91, "exit": 93, "exit_group": 94,
    "set_tid_address": 96, "futex": 98, "set_robust_list": 99, "nanosleep": 101, "getitimer": 102, "setitimer": 103,
    "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115, "sched_getaffinity": 123, "sched_yield": 124,
    "restart_syscall": 128, "kill": 129, "tgkill": 131, "sigaltstack": 132, "rt_sigaction": 134,
    "rt_sigprocmask": 135, "rt_sigreturn": 139, "times": 153, "getrusage": 165, "gettimeofday": 169, "getpid": 172,
    "getuid": 174, "geteuid": 175, "getgid": 176, "getegid": 177, "gettid": 178, "brk": 214, "munmap": 215,
    "mremap": 216, "clone": 220, "mmap": 222, "mprotect": 226, "madvise": 233, "prlimit64": 261, "getrandom": 278,
    "membarrier": 283, "rseq": 293, "clone3": 435,
}  # fmt: skip

MACHINES = {"x86_64": Machine(0xC000003E, _X86), "aarch64": Machine(0xC00000B7, _ARM)}


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


NOBODY = 65534
OPEN_FILES = 32
STACK = 64 << 20
_PAGE = resource.getpagesize()


def machine() -> Machine | None:
    """Return the system calls of this processor; None if there is no table."""
    return MACHINES.get(os.uname().machine)


def lock_zygote() -> dict[str, Any]:
    """Apply the locks of all samples: an unprivileged user, no capabilities, no files. Returns the active ones."""
    if os.getuid() == 0:
        _become_nobody()
    closed_to_others()
    no_new_privileges()
    syscalls = machine()
    if syscalls is not None:
        drop_capabilities(syscalls.numbers["capset"])
    return {"landlock": give_up_files(), "uid": os.getuid()}


def _become_nobody() -> None:
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    except OSError:
        return  # a container without real root: the other locks do not need it


def prepare() -> None:
    """Build the part of the filters that all samples share."""
    syscalls = machine()
    if syscalls is not None:
        of_process(syscalls, 0)


def lock_sample(limits: Mapping[str, Any], parent: int) -> None:
    """Apply a sample's own locks: it dies with its zygote, has its own session, limits, and a system-call filter."""
    die_with_parent()
    if os.getppid() != parent:
        os._exit(1)  # the zygote died before the request took effect
    os.setsid()
    _limit(limits)
    syscalls = machine()
    if syscalls is not None and not limits["open"]:
        install_filter(of_process(syscalls, os.getpid()))
    elif not limits["open"]:
        raise OSError(f"no table of system calls for {os.uname().machine}")


def address_space() -> int:
    """Return the bytes that this process has mapped."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * _PAGE
    except OSError:  # there is no /proc under bubblewrap
        return 256 << 20


def _limit(limits: Mapping[str, Any]) -> None:
    for name, limit in (
        ("AS", limits["base"] + limits["memory"]),
        ("CPU", limits["cpu"]),
        ("FSIZE", limits["output"]),
        ("NPROC", limits["tasks"]),
        ("NOFILE", OPEN_FILES),
        ("STACK", STACK),
        ("CORE", 0),
        ("MEMLOCK", 0),
        ("MSGQUEUE", 0),
    ):
        kind = getattr(resource, f"RLIMIT_{name}")
        hard_limit = resource.getrlimit(kind)[1]
        value = limit if hard_limit == resource.RLIM_INFINITY else min(limit, hard_limit)
        resource.setrlimit(kind, (value, value))
