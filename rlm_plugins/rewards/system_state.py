"""State of this process in the operating system that a reward must not change: folder, variables, limits, signals."""

from __future__ import annotations

import contextlib
import importlib
import locale
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from rlm_plugins.rewards.state_item import StateItem

_signal: Any = importlib.import_module("_signal")  # the functions of `signal` convert all numbers to enums
with contextlib.suppress(ImportError):  # Windows has no such limits
    import resource
_SIGNALS = [int(number) for number in signal.valid_signals() if number < 32]
_LIMITS = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "STACK")
_TIMERS = ("REAL", "VIRTUAL", "PROF")
_CLOCKS = {"REAL": "SIGALRM", "VIRTUAL": "SIGVTALRM", "PROF": "SIGPROF"}


def _variables() -> dict[Any, Any]:
    """Return the table behind `os.environ`; to decode all of it takes as long as all other items."""
    return dict(getattr(os.environ, "_data", None) or os.environ)


def _set_variables(before: Mapping[Any, Any]) -> None:
    decode = os.environ.decodevalue if "_data" in vars(os.environ) else str  # type: ignore[attr-defined]
    variables = {decode(name): decode(value) for name, value in before.items()}
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in variables.items() if os.environ.get(name) != value})


def _mask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _limit(name: str) -> StateItem:
    resource_id = getattr(resource, f"RLIMIT_{name}")
    return StateItem(
        "the limits of the process",
        lambda: resource.getrlimit(resource_id),
        lambda limit: resource.setrlimit(resource_id, limit),
        "resource",
    )


def _blocked() -> set[int]:
    """Return the signals that this thread blocks: they would no longer end the run."""
    return set(_signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def _handlers() -> dict[int, Any]:
    return {number: _signal.getsignal(number) for number in _SIGNALS}


def _set_handlers(before: Mapping[int, Any]) -> None:
    for number, handler in before.items():
        if handler is not None and _signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _timer(clock: str) -> StateItem:
    timer_id = getattr(signal, f"ITIMER_{clock}")
    return StateItem(
        f"the timer of {_CLOCKS[clock]}",
        lambda: signal.getitimer(timer_id),
        lambda timer: signal.setitimer(timer_id, *timer),
        is_equal=lambda before, after: (before[0] > 0) == (after[0] > 0),  # a running timer counts down
        main_thread=True,
    )


STATE_ITEMS = (
    StateItem("the working directory", os.getcwd, os.chdir),
    StateItem("the environment variables", _variables, _set_variables),
    StateItem(
        "the locale",
        lambda: locale.setlocale(locale.LC_ALL),
        lambda name: locale.setlocale(locale.LC_ALL, name),
    ),
    StateItem("the permissions of new files (umask)", _mask, os.umask),
    StateItem("the processor cores", lambda: os.sched_getaffinity(0), lambda cores: os.sched_setaffinity(0, cores)),
    StateItem(
        "the priority of the process",
        lambda: os.getpriority(os.PRIO_PROCESS, 0),
        lambda nice: os.setpriority(os.PRIO_PROCESS, 0, nice),
    ),
    *(_limit(name) for name in _LIMITS if "resource" in sys.modules and hasattr(resource, f"RLIMIT_{name}")),
    StateItem("the signal handlers", _handlers, _set_handlers, main_thread=True),
    StateItem(
        "the blocked signals",
        _blocked,
        lambda numbers: signal.pthread_sigmask(signal.SIG_SETMASK, numbers),
        main_thread=True,
    ),
    *(_timer(clock) for clock in _TIMERS if hasattr(signal, f"ITIMER_{clock}")),
)
