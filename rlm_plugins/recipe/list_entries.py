"""Lookup of a list entry by its position, its label (``as``) or its name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlm_plugins.errors import RecipeError, nearest


def position(entries: Sequence[Any], step: str, where: str = "") -> int:
    """Return the position of the list entry that `step` names: a position, a label, or a part.

    Raises:
        RecipeError: No such entry, or several; it lists the entries.

    >>> position([{"name": "kl"}, {"name": "length", "as": "short"}], "short")
    1
    """
    if step.isdecimal() and len(step) < 6 and int(step) < len(entries):
        return int(step)
    names = [entry_name(entry) for entry in entries]
    if names.count(step) == 1:
        return names.index(step)
    problem = f"several entries have the name '{step}'" if step in names else f"unknown entry '{step}'"
    allowed = ", ".join(f"{i} ({name})" if name else str(i) for i, name in enumerate(names))
    hint = nearest(step, names) or "a mapping overrides entries; a list replaces them: `[{name: …}]`"
    raise RecipeError(problem, where=where, allowed=allowed or "nothing: the list is empty", hint=hint)


def entry_name(entry: Any) -> str:
    """Return the label or the name of an entry; empty without either."""
    return str(entry.get("as") or entry.get("name") or "") if isinstance(entry, dict) else ""
