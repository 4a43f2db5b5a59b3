"""Misspelled optional members of parts, which would otherwise never be called."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import PluginError
from rlm_plugins.registry.protocols import MEMBERS

if TYPE_CHECKING:
    from rlm_plugins.registry.part import Part


def check_members(part: Part) -> None:
    """Check that no public member is a misspelling of an optional member.

    Of a class only the methods are compared with :data:`MEMBERS`: an attribute may well be called `column`.

    Raises:
        PluginError: It names the member and the right spelling.
    """
    members = _members(part.target)
    for name in members:
        if inspect.isclass(part.target) and not callable(members[name]):
            continue
        close = [member for member in MEMBERS if name not in MEMBERS and _distance(name, member) <= 2]
        if close:
            raise PluginError(
                f"has a member '{name}', which is never used",
                where=part.where,
                hint=f"did you mean `{close[0]}`? Otherwise rename it, or begin it with an underscore",
            )


def _members(target: Any) -> dict[str, Any]:
    """Return the public attributes of a function, or of a class and its bases."""
    owners = target.__mro__ if inspect.isclass(target) else [target]
    members: dict[str, Any] = {}
    for owner in owners:
        members |= getattr(owner, "__dict__", {})
    return {name: value for name, value in members.items() if not name.startswith("_")}


def _distance(one: str, other: str) -> int:
    """Return the number of letters to insert, delete, replace or swap with their neighbor; 3 or more is far.

    Short names are compared strictly: `step` is no misspelled `setup`.

    >>> _distance("valdiate", "validate"), _distance("memory_byte", "memory_bytes"), _distance("step", "setup") > 2
    (1, 1, True)
    """
    table = {(i, -1): i + 1 for i in range(-1, len(one))}
    table |= {(-1, j): j + 1 for j in range(len(other))}
    for i, x in enumerate(one):
        for j, y in enumerate(other):
            steps = [table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (x != y)]
            if i and j and x == other[j - 1] and y == one[i - 1]:
                steps.append(table[i - 2, j - 2] + 1)
            table[i, j] = min(steps)
    distance = table[len(one) - 1, len(other) - 1]
    return distance if distance < 2 or min(len(one), len(other)) > 5 else distance + 1
