"""Values as sets of real numbers, and their combinations."""

from __future__ import annotations

from collections.abc import Sequence

from rlm_math.algebra.errors import UnreadableError
from rlm_math.algebra.nodes import Node, variables
from rlm_math.algebra.real_sets import Combination, Interval, point
from rlm_math.algebra.values import Items, Named, Numbers, Value


def combined(kind: str, sets: Sequence[Numbers | None]) -> Numbers:
    """Combine sets of numbers of one variable."""
    known = [each for each in sets if each is not None]
    names = {each.variable for each in known}
    if len(known) < len(sets) or len(names - {""}) > 1:
        raise UnreadableError("sets of different variables")
    parts = tuple(each.elements for each in known)
    return Numbers(Combination(kind, parts), max(names))  # type: ignore[arg-type]


def as_numbers(value: Value) -> Numbers | None:
    """Return a value as a set of real numbers; None if it is none."""
    if isinstance(value, Numbers):
        return value
    if isinstance(value, Items) and all(isinstance(item, Node) for item in value.items):
        items = [item for item in value.items if isinstance(item, Node)]
        if value.opened == "{":
            return Numbers(Combination("union", tuple(point(item) for item in items)))
        if len(items) == 2 and value.opened in ("(", "[") and value.closed in (")", "]"):
            low, high = items
            return Numbers(Interval(low, high, has_low=value.opened == "[", has_high=value.closed == "]"))
    return None


def as_solution(value: Value) -> Value:
    """Return ``x = 3`` as the set of its solution; anything else unchanged."""
    is_point = isinstance(value, Named) and isinstance(value.value, Node) and not variables(value.value)
    return Numbers(point(value.value), value.name) if is_point else value  # type: ignore[union-attr,arg-type]
