"""The kinds of answers: expressions, lists, tuples, sets of reals, matrices, equations, inequalities, congruences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rlm_math.algebra.equality import compare
from rlm_math.algebra.nodes import INFINITY, MINUS_INFINITY, Node, UndefinedError, UnreadableError, variables

MAX_ENDPOINTS = 60


@dataclass(frozen=True)
class Interval:
    """An interval; a point if both ends are equal and closed. An end may be ±∞."""

    low: Node
    high: Node
    has_low: bool
    has_high: bool


@dataclass(frozen=True)
class Combination:
    """A union, intersection or difference."""

    kind: Literal["union", "intersection", "difference"]
    parts: tuple[RealSet, ...]


RealSet = Interval | Combination
REALS = Interval(MINUS_INFINITY, INFINITY, has_low=False, has_high=False)


def point(value: Node) -> Interval:
    """Return the set of one number."""
    return Interval(value, value, has_low=True, has_high=True)


def without(value: Node) -> Combination:
    """Return all real numbers but one."""
    return Combination("difference", (REALS, point(value)))


def are_same_sets(gold: RealSet, answer: RealSet, *, ends_count: bool = True) -> bool:
    """Return True if both sets have the same elements; without `ends_count`, up to the ends of intervals.

    Raises:
        UndefinedError: The order of two ends is unknown.
    """
    ends_of_both = _sorted([*_ends(gold), *_ends(answer)])
    cells = range(0 if ends_count else 1, 2 * len(ends_of_both) - 1, 1 if ends_count else 2)
    return all(_contains(gold, cell, ends_of_both) == _contains(answer, cell, ends_of_both) for cell in cells)


def _ends(real_set: RealSet) -> Iterator[Node]:
    if isinstance(real_set, Interval):
        yield real_set.low
        yield real_set.high
    else:
        for part in real_set.parts:
            yield from _ends(part)


def _sorted(ends: list[Node]) -> list[Node]:
    if len(ends) > MAX_ENDPOINTS:
        raise UndefinedError("too many intervals")
    ordered: list[Node] = []
    for end in dict.fromkeys(ends):
        index = 0
        while index < len(ordered) and _order(ordered[index], end) < 0:
            index += 1
        if index == len(ordered) or _order(ordered[index], end) != 0:
            ordered.insert(index, end)
    return ordered


def _order(a: Node, b: Node) -> int:
    ranks = [{INFINITY: 1, MINUS_INFINITY: -1}.get(each, 0) for each in (a, b)]
    return ranks[0] - ranks[1] if any(ranks) else compare(a, b)


def _contains(real_set: RealSet, cell: int, ends: list[Node]) -> bool:
    """Return True if a set contains a cell: the end `cell` / 2, or the numbers between two ends."""
    if isinstance(real_set, Interval):
        low, high = (2 * _index(end, ends) for end in (real_set.low, real_set.high))
        at_low, at_high = cell == low and real_set.has_low, cell == high and real_set.has_high
        return low < cell < high or (at_low and cell <= high) or (at_high and cell >= low)
    parts = [_contains(part, cell, ends) for part in real_set.parts]
    if real_set.kind == "difference":
        return parts[0] and not any(parts[1:])
    return any(parts) if real_set.kind == "union" else all(parts)


def _index(end: Node, ends: list[Node]) -> int:
    return ends.index(end) if end in ends else next(i for i, each in enumerate(ends) if _order(end, each) == 0)


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
    """A set of real numbers that is no list."""

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
