"""The locks, in order. The zygote gives up what it can while it must still fork; each sample gives up the rest."""

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
    """The system calls of this processor; None where there is no table of them."""
    return MACHINES.get(os.uname().machine)


def lock_zygote() -> dict[str, Any]:
    """What lasts for all samples: nobody's user, no capabilities, no files. Returns what holds, for the status line."""
    if os.getuid() == 0:
        _become_nobody()
    kernel.closed_to_others()
    kernel.no_new_privileges()
    here = machine()
    if here is not None:
        kernel.drop_capabilities(here.numbers["capset"])
    return {"landlock": landlock.give_up_files(), "uid": os.getuid()}


def _become_nobody() -> None:
    try:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    except OSError:
        return  # a container that is root in name only: the other locks do not need it


def prepare() -> None:
    """Makes what all samples share of their filters."""
    here = machine()
    if here is not None:
        seccomp.of_process(here, 0)


def lock_sample(limits: Mapping[str, Any], parent: int) -> None:
    """What each sample adds: it dies with its zygote, has a session of its own and limits, and calls little.

    Raises:
        OSError: The kernel refuses a lock.
    """
    kernel.die_with_parent()
    if os.getppid() != parent:
        os._exit(1)  # it died before we asked to die with it
    os.setsid()
    _limit(limits)
    here = machine()
    if here is not None and not limits["open"]:
        kernel.install_filter(seccomp.of_process(here, os.getpid()))
    elif not limits["open"]:
        raise OSError(f"no table of system calls for {os.uname().machine}")


def address_space() -> int:
    """Bytes this process has mapped already."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * _PAGE
    except OSError:  # bubblewrap shows no /proc
        return 256 << 20


def _limit(limits: Mapping[str, Any]) -> None:
    for name, most in (
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
        highest = resource.getrlimit(kind)[1]
        value = most if highest == resource.RLIM_INFINITY else min(most, highest)
        resource.setrlimit(kind, (value, value))
