"""Expressions as trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import flint


class UnreadableError(Exception):
    """A text that is no mathematics, or has more than one reading."""


class UndefinedError(Exception):
    """An expression without a value: 1/0 or 0^0."""


class UndecidedError(UndefinedError):
    """An expression with a value that cannot be computed within the limits."""


@dataclass(frozen=True, slots=True)
class Node:
    """An operation and its arguments.

    Args:
        op: ``number``, ``symbol``, ``+``, ``*``, ``/``, ``^``, ``-`` (a sign), ``root``, ``sum``, or a function.
        args: Its arguments.
        value: An exact rational number, or the name of a symbol.
        places: Decimal places of a number written as a decimal.
    """

    op: str
    args: tuple[Node, ...] = ()
    value: Any = None
    places: int = 0


CONSTANTS = {"pi", "e", "i"}
"""Symbols with a value."""
INDEX = "index "
"""Prefix of the name of an index of summation."""
INFINITY = Node("symbol", value="infinity")
MINUS_INFINITY = Node("-", (INFINITY,))


def number(numerator: int, denominator: int = 1, places: int = 0) -> Node:
    """Return a rational number."""
    return Node("number", value=flint.fmpq(numerator, denominator), places=places)


DEGREE = Node("/", (Node("symbol", value="pi"), number(180)))


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and everything below it."""
    stack = [node]
    while stack:
        each = stack.pop()
        yield each
        stack += each.args


def variables(node: Node) -> set[str]:
    """Return the names of the symbols without a value."""
    names = {each.value for each in walk(node) if each.op == "symbol" and each.value not in CONSTANTS}
    return {name for name in names if not name.startswith(INDEX)}


def is_decimal(node: Node) -> bool:
    """Return True if a decimal occurs in an expression."""
    return any(each.places for each in walk(node))


def substitute(node: Node, values: Mapping[str, Node]) -> Node:
    """Replace symbols by expressions."""
    if node.op == "symbol":
        return values.get(node.value, node)
    if not node.args:
        return node
    return Node(node.op, tuple(substitute(each, values) for each in node.args), node.value, node.places)
