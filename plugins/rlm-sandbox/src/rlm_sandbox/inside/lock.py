"""The locks, in order. The zygote gives up everything it does not need to fork; each sample gives up the rest."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from typing import Any

from rlm_sandbox.inside import kernel, landlock, seccomp
from rlm_sandbox.inside.syscalls import MACHINES, Machine

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
    kernel.closed_to_others()
    kernel.no_new_privileges()
    syscalls = machine()
    if syscalls is not None:
        kernel.drop_capabilities(syscalls.numbers["capset"])
    return {"landlock": landlock.give_up_files(), "uid": os.getuid()}


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
        seccomp.of_process(syscalls, 0)


def lock_sample(limits: Mapping[str, Any], parent: int) -> None:
    """Apply a sample's own locks: it dies with its zygote, has its own session, limits, and a system-call filter."""
    kernel.die_with_parent()
    if os.getppid() != parent:
        os._exit(1)  # the zygote died before the request took effect
    os.setsid()
    _limit(limits)
    syscalls = machine()
    if syscalls is not None and not limits["open"]:
        kernel.install_filter(seccomp.of_process(syscalls, os.getpid()))
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
