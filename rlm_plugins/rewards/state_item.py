"""One item of the state of a process that a reward must not change."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StateItem:
    """One item of the state.

    Args:
        name: Its name in messages; several items may share one.
        read: Returns it.
        restore: Sets it.
        module: It is read only if this module has been imported.
        is_equal: Compares two values.
        main_thread: True if only the main thread can set it.
    """

    name: str
    read: Callable[[], Any]
    restore: Callable[[Any], Any]
    module: str = "sys"
    is_equal: Callable[[Any, Any], bool] = lambda before, after: bool(before == after)
    main_thread: bool = False


def functions(name: str, module: str, read: str, restore: str) -> StateItem:
    """Return an item that one function of a module reads and another one sets.

    >>> functions("the recursion limit", "sys", "getrecursionlimit", "setrecursionlimit").read() > 0
    True
    """
    reader, setter = operator.attrgetter(read), operator.attrgetter(restore)
    return StateItem(name, lambda: reader(sys.modules[module])(), lambda x: setter(sys.modules[module])(x), module)


def variable(name: str, module: str, path: str) -> StateItem:
    """Return an item that is an attribute of a module, compared by identity."""
    parent, _, attribute = path.rpartition(".")
    read = operator.attrgetter(path)

    def restore(value: Any) -> None:
        setattr(operator.attrgetter(parent)(sys.modules[module]) if parent else sys.modules[module], attribute, value)

    return StateItem(name, lambda: read(sys.modules[module]), restore, module, lambda before, after: before is after)
