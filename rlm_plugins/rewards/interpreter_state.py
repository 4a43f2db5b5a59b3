"""State of the interpreter and of the operating system that a reward must not change: limits, masks, filters."""

from __future__ import annotations

import builtins
import contextlib
import gc
import importlib
import logging
import os
import signal
import sys
import warnings
from typing import Any

from rlm_plugins.rewards.aspect import Aspect

_signal: Any = importlib.import_module("_signal")  # the functions of `signal` convert all numbers to enums
with contextlib.suppress(ImportError):  # Windows has no such limits
    import resource


def _mask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _blocked() -> set[int]:
    """Return the signals that this thread blocks: they would no longer end the run."""
    return set(_signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def _limits() -> dict[int, tuple[int, int]]:
    return {kind: resource.getrlimit(kind) for kind in _LIMITS}


def _set_limits(limits: dict[int, tuple[int, int]]) -> None:
    for kind, limit in limits.items():
        with contextlib.suppress(ValueError, OSError):  # a hard limit cannot be raised again
            resource.setrlimit(kind, limit)


_LIMITS = [
    getattr(resource, name)
    for name in ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_NPROC")
    if "resource" in sys.modules and hasattr(resource, name)
]


def _error_filters() -> list[Any]:
    """Return the filters that turn warnings into errors; others are added by many libraries when they are imported."""
    return [entry for entry in warnings.filters if entry[0] == "error"]


def _set_error_filters(before: list[Any]) -> None:
    for entry in [entry for entry in _error_filters() if entry not in before]:
        warnings.filters.remove(entry)  # type: ignore[attr-defined]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _set_path(before: list[str]) -> None:
    """Put back what was removed; what was added stays, because later calls import from there."""
    sys.path[:] = [*before, *(entry for entry in sys.path if entry not in before)]


def _same_path(before: list[str], after: list[str]) -> bool:
    return before == after or set(before) <= set(after)


def _set_collection(state: tuple[bool, tuple[int, int, int]]) -> None:
    (gc.enable if state[0] else gc.disable)()
    gc.set_threshold(*state[1])


def _same_builtins(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return before == after or all(after.get(name) is value for name, value in before.items() if name != "_")


def _timer(kind: int) -> Aspect:
    return Aspect(
        f"the timer of {'SIGVTALRM' if kind == signal.ITIMER_VIRTUAL else 'SIGPROF'}",
        lambda: signal.getitimer(kind),
        lambda timer: signal.setitimer(kind, *timer),
        same=same_timer,
    )


def same_timer(before: tuple[float, float], after: tuple[float, float]) -> bool:
    """Return True if both run, or neither; a running timer counts down."""
    return (before[0] > 0) == (after[0] > 0)


ASPECTS = (
    Aspect("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    Aspect("the switch interval", sys.getswitchinterval, sys.setswitchinterval),
    Aspect("the longest integer that is printed", sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    Aspect("garbage collection", lambda: (gc.isenabled(), gc.get_threshold()), _set_collection),
    Aspect("the built-in functions", lambda: dict(vars(builtins)), vars(builtins).update, same=_same_builtins),
    Aspect("sys.path", lambda: list(sys.path), _set_path, same=_same_path),
    Aspect("the filters of warnings", _error_filters, _set_error_filters),
    Aspect("`logging.disable`", lambda: logging.root.manager.disable, logging.disable),
    Aspect("the permissions of new files (umask)", _mask, os.umask),
    Aspect("the limits of the process", _limits, _set_limits, "resource"),
    Aspect(
        "the timeout of sockets",
        lambda: sys.modules["socket"].getdefaulttimeout(),
        lambda seconds: sys.modules["socket"].setdefaulttimeout(seconds),
        "socket",
    ),
    *(
        [Aspect("the processor cores", lambda: os.sched_getaffinity(0), lambda cores: os.sched_setaffinity(0, cores))]
        if hasattr(os, "sched_getaffinity")
        else []
    ),
)
OF_SIGNALS = (
    *(
        [Aspect("the blocked signals", _blocked, lambda numbers: signal.pthread_sigmask(signal.SIG_SETMASK, numbers))]
        if hasattr(signal, "pthread_sigmask")
        else []
    ),
    *(map(_timer, (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)) if hasattr(signal, "ITIMER_PROF") else ()),
)
"""Only in the main thread."""
