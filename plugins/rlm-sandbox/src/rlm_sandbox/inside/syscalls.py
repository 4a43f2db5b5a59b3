"""System calls that a sample may make, by number: none takes a path, opens a socket or creates a process."""

from __future__ import annotations

from dataclasses import dataclass

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
