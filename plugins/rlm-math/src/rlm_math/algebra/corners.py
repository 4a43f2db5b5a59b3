"""Points on every side of the corners, jumps and ends of domains of a function, where random points rarely fall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import flint

from rlm_math.algebra.exact import fold
from rlm_math.algebra.nodes import Node, UndefinedError, number, substitute, variables, walk

MAX_CORNERS = 80
"""Corners of one variable."""
_STEPS = {"floor", "ceil", "mod"}
_CORNERED = {"abs", "root", "ln", "lg", "log", "max", "min", *_STEPS}


def corner_points(nodes: tuple[Node, ...], point: Mapping[str, Node]) -> Iterator[dict[str, Node]]:
    """Yield points that differ from `point` in one variable: its corners, and one point between any two of them.

    Raises:
        UndefinedError: There are too many corners.
    """
    for name in point:
        others = {key: value for key, value in point.items() if key != name}
        fixed = [substitute(each, others) for each in nodes]
        values = _values([part for each in fixed for part in _cornered(each, name)], name)
        for value in values:
            yield {**point, name: Node("number", value=value)}


def has_zero_base(nodes: tuple[Node, ...], point: Mapping[str, Node]) -> bool:
    """Return True if an expression has a power 0^f(x), which differs from 0 only where f is 0, or has no value."""
    powers = [each.args for node in nodes for each in walk(node) if each.op == "^" and variables(each.args[1])]
    return any(fold(substitute(base, point)) == number(0) for base, _ in powers)


def _cornered(node: Node, name: str) -> Iterator[Node]:
    """Yield the expressions at whose zeros a function may have a corner, a jump, or the end of its domain."""
    for each in walk(node):
        is_root = each.op == "^" and (each.args[1].op != "number" or each.args[1].value.denominator != 1)
        if not (each.op in _CORNERED or is_root) or name not in variables(each):
            continue
        inside = each.args if each.op in ("max", "min") else each.args[:1]
        for argument in inside:
            yield from (part for part in walk(argument) if name in variables(part))
        if each.op in ("max", "min"):
            yield from (Node("+", (inside[0], Node("-", (other,)))) for other in inside[1:])
        if each.op in _STEPS:
            value = Node("/", each.args) if each.op == "mod" else each.args[0]
            yield from (Node("+", (value, number(step))) for step in (-1, 0, 1, -1000))


def _values(parts: list[Node], name: str) -> list[flint.fmpq]:
    """Return all corners of a variable, a point between any two neighbors, and one beyond each end."""
    zeros = sorted({zero for part in dict.fromkeys(parts) for zero in _zeros(part, name)})
    if len(zeros) > MAX_CORNERS:
        raise UndefinedError("too many corners")
    if not zeros:
        return []
    between = [(a + b) / 2 for a, b in pairwise(zeros)]
    return [*zeros, *between, zeros[0] - abs(zeros[0]) - 1, zeros[-1] + abs(zeros[-1]) + 1]


def _zeros(node: Node, name: str) -> list[flint.fmpq]:
    """Return the zero of a linear function with rational coefficients, and small integers for any other one."""
    small = [flint.fmpq(k) for k in range(-2, 4)]
    try:
        values = [fold(substitute(node, {name: number(k)})) for k in range(3)]
    except UndefinedError:
        return small
    if any(value.op != "number" for value in values):
        return small
    at_zero, at_one, at_two = (value.value for value in values)
    slope = at_one - at_zero
    if at_two - at_one != slope:
        return small
    return [-at_zero / slope] if slope else []
