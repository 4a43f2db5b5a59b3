"""Which entry of a list is meant: by its position, its label (``as``) or its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlm_plugins.errors import RecipeError, nearest


def position(entries: Sequence[Any], step: str, where: str = "") -> int:
    """The place of the entry that `step` means.

    Raises:
        RecipeError: No entry is meant, or several; it lists what there is.

    >>> position([{"name": "kl"}, {"name": "length", "as": "short"}], "short")
    1
    """
    if step.isdecimal() and len(step) < 6 and int(step) < len(entries):
        return int(step)
    names = [called(entry) for entry in entries]
    if names.count(step) == 1:
        return names.index(step)
    problem = f"several entries are called '{step}'" if step in names else f"there is no entry '{step}'"
    allowed = ", ".join(f"{i} ({name})" if name else str(i) for i, name in enumerate(names))
    hint = nearest(step, names) or "a mapping turns what is there; to choose parts say a list: `[{name: …}]`"
    raise RecipeError(problem, where=where, allowed=allowed or "nothing: the list is empty", hint=hint)


def called(entry: Any) -> str:
    """What an entry goes by: its label, else its name; empty when it has neither."""
    return str(entry.get("as") or entry.get("name") or "") if isinstance(entry, dict) else ""
