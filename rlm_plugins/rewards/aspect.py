"""One item of the state of a process that a reward must not change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Aspect:
    """One item of the state.

    Args:
        name: Its name in messages.
        read: Returns it.
        restore: Sets it.
        module: It is read only if this module has been imported.
        same: Compares two values.
    """

    name: str
    read: Callable[[], Any]
    restore: Callable[[Any], Any]
    module: str = "sys"
    same: Callable[[Any, Any], bool] = lambda before, after: bool(before == after)
