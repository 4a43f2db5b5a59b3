"""State of the process that a reward must not change: random numbers, settings of torch, streams, signal handlers.

A reward that calls `torch.manual_seed` or leaves autocast on changes the run without an error.
"""

from __future__ import annotations

import contextlib
import decimal
import importlib
import locale
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlm_plugins.rewards import interpreter_state, library_state, streams
from rlm_plugins.rewards.aspect import Aspect

_handler_of: Any = importlib.import_module("_signal").getsignal  # that of `signal` converts all numbers to enums


def _handlers() -> dict[int, Any]:
    return {number: _handler_of(number) for number in _SIGNALS}


def _set_handlers(handlers: Mapping[int, Any]) -> None:
    for number, handler in handlers.items():
        if handler is not None and _handler_of(number) != handler:
            signal.signal(number, handler)


def _variables() -> dict[Any, Any]:
    """Return the table behind `os.environ`; to decode all of it takes as long as all other items."""
    return getattr(os.environ, "_data", None) or dict(os.environ)


def _set_environment(variables: Mapping[Any, Any]) -> None:
    decode = os.environ.decodevalue if "_data" in vars(os.environ) else str  # type: ignore[attr-defined]
    wanted = {decode(name): decode(value) for name, value in variables.items()}
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in wanted.items() if os.environ.get(name) != value})


def _cwd() -> str:
    with contextlib.suppress(OSError):
        return os.getcwd()
    return ""


def _set_cwd(folder: str) -> None:
    if folder:
        os.chdir(folder)


def _tracing() -> tuple[Any, Any]:
    return sys.gettrace(), sys.getprofile()


def _set_tracing(functions: tuple[Any, Any]) -> None:
    sys.settrace(functions[0])
    sys.setprofile(functions[1])


_SIGNALS = [int(number) for number in signal.valid_signals() if number < 32]
ASPECTS = (
    *library_state.ASPECTS,
    *interpreter_state.ASPECTS,
    Aspect("the random numbers of `random`", random.getstate, random.setstate),
    Aspect("the working directory", _cwd, _set_cwd),
    Aspect("the environment variables", lambda: _variables().copy(), _set_environment),
    Aspect("the trace function", _tracing, _set_tracing),
    Aspect("the locale", lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)),
    Aspect(
        "the decimal precision", lambda: decimal.getcontext().prec, lambda x: setattr(decimal.getcontext(), "prec", x)
    ),
    Aspect("the standard streams", streams.current, streams.restore, same=streams.unchanged),
)
_MAIN_THREAD = (
    *interpreter_state.OF_SIGNALS,
    Aspect("the signal handlers", _handlers, _set_handlers),
    Aspect(
        "the timer of SIGALRM",
        lambda: signal.getitimer(signal.ITIMER_REAL),
        lambda timer: signal.setitimer(signal.ITIMER_REAL, *timer),
        same=interpreter_state.same_timer,
    ),
)
"""Only the main thread can set them."""


@contextlib.contextmanager
def unchanged(changed: Callable[[list[str]], None]) -> Iterator[None]:
    """Restore the state of the process after the block.

    Args:
        changed: Called with the names of what the block had changed, if anything; also after an error.
    """
    is_main = threading.current_thread() is threading.main_thread()
    aspects = [a for a in (*ASPECTS, *(_MAIN_THREAD if is_main else ())) if a.module in sys.modules]
    before = [aspect.read() for aspect in aspects]
    try:
        yield
    finally:
        names = [aspect.name for aspect, value in zip(aspects, before, strict=True) if _restored(aspect, value)]
        if names:
            changed(names)


def _restored(aspect: Aspect, before: Any) -> bool:
    """Restore an item if it differs, as far as that is possible; return True if it did."""
    try:
        if aspect.same(before, aspect.read()):
            return False
    except Exception:  # a closed stream, a deleted folder: it cannot even be read
        pass
    with contextlib.suppress(Exception):  # the items after it are restored all the same
        aspect.restore(before)
    return True
