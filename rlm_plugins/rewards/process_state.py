"""State of the process that a reward must not change: the results of the run would differ without an error.

The items are the tables `STATE_ITEMS` of four modules.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import starmap
from typing import Any

from rlm_plugins.rewards import interpreter_state, library_state, random_state, system_state
from rlm_plugins.rewards.state_item import StateItem

_MODULES = (random_state, library_state, interpreter_state, system_state)
STATE_ITEMS: tuple[StateItem, ...] = tuple(item for module in _MODULES for item in module.STATE_ITEMS)
NOT_RESTORED = " (cannot be restored)"
"""Suffix of the name of an item that could not be restored."""


@contextlib.contextmanager
def unchanged(changed: Callable[[list[str]], None]) -> Iterator[None]:
    """Restore the state of the process after the block.

    Args:
        changed: Called with the names of what the block had changed, if anything; also after an error.
    """
    before = list(_read())
    try:
        yield
    finally:
        names = dict.fromkeys(filter(None, starmap(_restored, before)))
        if names:
            changed(list(names))


def _read() -> Iterator[tuple[StateItem, Any]]:
    """Yield every item and its value; one that this system or version lacks is left out."""
    is_main = threading.current_thread() is threading.main_thread()
    for item in STATE_ITEMS:
        if item.module in sys.modules and (is_main or not item.main_thread):
            with contextlib.suppress(Exception):
                yield item, item.read()


def _restored(item: StateItem, before: Any) -> str:
    """Restore an item if it differs, as far as that is possible; return its name if it did."""
    if _is_same(item, before):
        return ""
    with contextlib.suppress(Exception):  # the items after it are restored all the same
        item.restore(before)
    return item.name if _is_same(item, before) else item.name + NOT_RESTORED


def _is_same(item: StateItem, before: Any) -> bool:
    try:
        return item.is_equal(before, item.read())
    except Exception:  # a closed stream, a deleted folder: it cannot even be read
        return False
