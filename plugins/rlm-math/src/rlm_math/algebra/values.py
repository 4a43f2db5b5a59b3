"""The kinds of answers: expressions, lists, tuples, sets, matrices, equations, inequalities, congruences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlm_math.algebra.nodes import Node
from rlm_math.algebra.real_sets import RealSet

DOTS = Node("symbol", value="…")
"""The dots in 1, 2, …, 9."""


@dataclass(frozen=True)
class Items:
    """Several answers.

    Args:
        opened, closed: Brackets: ``(``, ``[``, ``{`` (a set), ``<`` (a vector), or empty (a list in any order).
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
class Point:
    """Coordinates with the name of a point: ``P(1, 2)``."""

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


@dataclass(frozen=True)
class Congruence:
    """A residue and its modulus."""

    residue: Node
    modulus: Node
    name: str = ""


Value = Node | Items | Numbers | Matrix | Named | Point | Relation | Congruence


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
