"""The kinds of answers: expressions, lists, tuples, sets, matrices, equations, inequalities, congruences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlm_math.algebra.nodes import Node, UnreadableError, variables
from rlm_math.algebra.real_sets import Combination, Interval, RealSet, point

DOTS = Node("symbol", value="…")
"""The dots in 1, 2, …, 9."""


@dataclass(frozen=True)
class Items:
    """Several answers.

    Args:
        opened, closed: Brackets: ``(``, ``[``, ``{`` (a set), ``<`` (a vector), ``mod`` (a residue and its modulus), or
            empty (a list in any order).
        items: The answers.
    """

    opened: str
    items: tuple[Value, ...]
    closed: str


@dataclass(frozen=True)
class Numbers:
    """A set of real numbers that is no list.

    Args:
        elements: The set.
        variable: Name of the unknown in an inequality; empty: none.
    """

    elements: RealSet
    variable: str = ""


@dataclass(frozen=True)
class Matrix:
    """A matrix with its rows; `bars` if it stands for its determinant."""

    rows: tuple[tuple[Value, ...], ...]
    bars: str = ""


@dataclass(frozen=True)
class Named:
    """A value with the name of a variable: ``x = 2``."""

    name: str
    value: Value


@dataclass(frozen=True)
class Relation:
    """An equation or inequality: the difference of both sides compared with zero.

    Args:
        difference: Left side minus right side.
        kind: ``=``, ``!=``, ``<`` or ``<=``.
    """

    difference: Node
    kind: str


Value = Node | Items | Numbers | Matrix | Named | Relation


def listed(values: Sequence[Value]) -> list[Value]:
    """Return the items of a list: lists of signs are opened, and a name is distributed (x = 1, 2)."""
    items: list[Value] = []
    for value in values:
        inside = value.value if isinstance(value, Named) else value
        is_open = isinstance(inside, Items) and not inside.opened
        each = inside.items if is_open else [inside]  # type: ignore[union-attr]
        items += [Named(value.name, item) for item in each] if isinstance(value, Named) else each
    if isinstance(items[0], Named) and not any(isinstance(item, (Named, Numbers)) for item in items[1:]):
        items[1:] = [Named(items[0].name, item) for item in items[1:]]
    return items


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
