"""State of the Python interpreter and its library that a reward must not change: limits, hooks, loggers."""

from __future__ import annotations

import builtins
import decimal
import faulthandler
import gc
import logging
import sys
import warnings
from typing import Any

from rlm_plugins.rewards import streams
from rlm_plugins.rewards.state_item import StateItem, functions, variable

_OURS = "rlm_plugins"
_DECIMAL = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def _error_filters() -> list[Any]:
    """Return the filters that turn warnings into errors; many libraries add other filters when they are imported."""
    return [entry for entry in warnings.filters if entry[0] == "error"]


def _set_error_filters(before: list[Any]) -> None:
    for entry in [entry for entry in _error_filters() if entry not in before]:
        warnings.filters.remove(entry)  # type: ignore[attr-defined]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _set_path(before: list[str]) -> None:
    """Move added entries to the end: later calls still import from them, and they shadow no other module."""
    sys.path[:] = [*before, *dict.fromkeys(entry for entry in sys.path if entry not in before)]


def _same_path(before: list[str], after: list[str]) -> bool:
    return after[: len(before)] == before


def _set_collection(state: tuple[bool, tuple[int, int, int], int]) -> None:
    (gc.enable if state[0] else gc.disable)()
    gc.set_threshold(*state[1])
    gc.set_debug(state[2])


def _same_builtins(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return before == after or all(after.get(name) is value for name, value in before.items() if name != "_")


def _decimal() -> tuple[list[Any], dict[Any, bool]]:
    context = decimal.getcontext()
    return [getattr(context, name) for name in _DECIMAL], dict(context.traps)


def _set_decimal(state: tuple[list[Any], dict[Any, bool]]) -> None:
    context = decimal.getcontext()
    for name, value in zip(_DECIMAL, state[0], strict=True):
        setattr(context, name, value)
    context.traps.update(state[1])  # type: ignore[arg-type]


_Loggers = tuple[list[Any], dict[str, tuple[int | None, bool]]]


def _loggers() -> _Loggers:
    """Return the handlers of the root logger, the switch of each logger, and the level of those of this package."""
    loggers = {name: x for name, x in logging.root.manager.loggerDict.items() if isinstance(x, logging.Logger)}
    settings = {name: (x.level if name.startswith(_OURS) else None, x.disabled) for name, x in loggers.items()}
    return list(logging.root.handlers), settings


def _set_loggers(before: _Loggers) -> None:
    logging.root.handlers += [handler for handler in before[0] if handler not in logging.root.handlers]
    for name, (level, is_disabled) in before[1].items():
        if level is not None:
            logging.getLogger(name).setLevel(level)
        logging.getLogger(name).disabled = is_disabled


def _same_loggers(before: _Loggers, after: _Loggers) -> bool:
    return all(handler in after[0] for handler in before[0]) and before[1].items() <= after[1].items()


def _set_fault_handler(is_enabled: bool) -> None:
    if is_enabled:
        faulthandler.enable(file=sys.__stderr__ or sys.stderr)
    else:
        faulthandler.disable()


STATE_ITEMS = (
    functions("the recursion limit", "sys", "getrecursionlimit", "setrecursionlimit"),
    functions("the switch interval", "sys", "getswitchinterval", "setswitchinterval"),
    functions("the longest integer that is printed", "sys", "get_int_max_str_digits", "set_int_max_str_digits"),
    functions("the trace function", "sys", "gettrace", "settrace"),
    functions("the trace function", "sys", "getprofile", "setprofile"),
    functions("the stack size of threads", "threading", "stack_size", "stack_size"),
    functions("the timeout of sockets", "socket", "getdefaulttimeout", "setdefaulttimeout"),
    functions("the level of the root logger", "logging", "root.getEffectiveLevel", "root.setLevel"),
    StateItem("`logging.disable`", lambda: logging.root.manager.disable, logging.disable),
    variable("the hooks for exceptions", "sys", "excepthook"),
    variable("the hooks for exceptions", "sys", "unraisablehook"),
    variable("the hooks for exceptions", "threading", "excepthook"),
    variable("the folder of temporary files", "tempfile", "tempdir"),
    variable("the start method of processes", "multiprocessing.context", "_default_context._actual_context"),
    StateItem("the loggers", _loggers, _set_loggers, is_equal=_same_loggers),
    StateItem("garbage collection", lambda: (gc.isenabled(), gc.get_threshold(), gc.get_debug()), _set_collection),
    StateItem("the built-in functions", lambda: dict(vars(builtins)), vars(builtins).update, is_equal=_same_builtins),
    StateItem("sys.path", lambda: list(sys.path), _set_path, is_equal=_same_path),
    StateItem("the filters of warnings", _error_filters, _set_error_filters),
    StateItem("the decimal context", _decimal, _set_decimal),
    StateItem("the fault handler", faulthandler.is_enabled, _set_fault_handler),
    StateItem("the standard streams", streams.current, streams.restore, is_equal=streams.unchanged),
)
