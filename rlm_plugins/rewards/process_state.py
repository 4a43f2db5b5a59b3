"""State of the process that a reward must not change, or the run would go on with other numbers without an error.

The items are the tables `ASPECTS` of four modules.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from rlm_plugins.rewards import interpreter_state, library_state, random_state, system_state
from rlm_plugins.rewards.aspect import Aspect

ASPECTS = (*random_state.ASPECTS, *library_state.ASPECTS, *interpreter_state.ASPECTS, *system_state.ASPECTS)
STAYS = " (cannot be restored)"
"""Added to the name of an item that differs still."""


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
        names = [name for aspect, value in before if (name := _restored(aspect, value))]
        if names:
            changed(list(dict.fromkeys(names)))


def _read() -> Iterator[tuple[Aspect, Any]]:
    """Yield every item and its value; one that this system or version lacks is left out."""
    is_main = threading.current_thread() is threading.main_thread()
    for aspect in ASPECTS:
        if aspect.module in sys.modules and (is_main or not aspect.main_thread):
            with contextlib.suppress(Exception):
                yield aspect, aspect.read()


def _restored(aspect: Aspect, before: Any) -> str:
    """Restore an item if it differs, as far as that is possible; return its name if it did."""
    if _is_same(aspect, before):
        return ""
    with contextlib.suppress(Exception):  # the items after it are restored all the same
        aspect.restore(before)
    return aspect.name if _is_same(aspect, before) else aspect.name + STAYS


def _is_same(aspect: Aspect, before: Any) -> bool:
    try:
        return aspect.same(before, aspect.read())
    except Exception:  # a closed stream, a deleted folder: it cannot even be read
        return False
