"""Points on every side of the corners, jumps and ends of domains of a function, where random points rarely fall."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import flint

from rlm_math.algebra.balls import Evaluation, precision
from rlm_math.algebra.exact import fold
from rlm_math.algebra.nodes import Node, UndefinedError, number, substitute, variables, walk

MAX_DEGREE = 6
"""Degree of a polynomial whose zeros are corners."""
MAX_CORNERS = 80
"""Corners of one variable."""
MAX_ISOLATED = 8
"""Expressions that are no such polynomial, of which zeros are isolated between powers of two."""
_BITS, _COARSE = 512, 128
_POWERS = [-4096, -512, -128, *range(-64, -8, 4), *range(-8, 8), *range(8, 65, 4)]
_POWERS += [80, 96, 128, 192, 256, 512, 1024, 4096, 16384]
_GRID = [(-1, k) for k in _POWERS[::-1]] + [(1, k) for k in _POWERS]
"""Signs and binary exponents of the points between which zeros are isolated, in order."""
_STEPS = {"floor", "ceil", "mod"}
_CORNERED = {"abs", "root", "ln", "lg", "log", "max", "min", *_STEPS}
_WAVES = {"sin", "cos", "tan", "cot", "sec", "csc"}
_TURNS = [Node("*", (number(k, 2), Node("symbol", value="pi"))) for k in (-3, -2, -1, 1, 2, 3)]
_TURNS += [Node("+", (turn, number(sign, 1 << 60))) for turn in _TURNS for sign in (-1, 1)]
"""Multiples of π/2, where waves are 0, 1 or −1, and points next to them, where some are large."""


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
        if values and any(each.op in _WAVES for node in fixed for each in walk(node)):
            for turn in _TURNS:
                yield {**point, name: turn}


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
    found, isolated = set[flint.fmpq](), 0
    for part in dict.fromkeys(parts):
        zeros_of_part = _zeros(part, name)
        if zeros_of_part is None and (isolated := isolated + 1) <= MAX_ISOLATED:
            zeros_of_part = _isolated(part, name)
        found.update(zeros_of_part or ())
    zeros = sorted(found)
    if len(zeros) > MAX_CORNERS:
        raise UndefinedError("too many corners")
    if not zeros:
        return []
    between = [(a + b) / 2 for a, b in pairwise(zeros)]
    return [*zeros, *between, zeros[0] - abs(zeros[0]) - 1, zeros[-1] + abs(zeros[-1]) + 1]


def _isolated(node: Node, name: str) -> list[flint.fmpq]:
    """Return zeros between two neighboring powers of two at which an expression without waves has opposite signs."""
    if any(each.op in _WAVES for each in walk(node)):
        return []
    signs = [(sign, k, _sign(node, name, sign * flint.fmpq(2) ** k)) for sign, k in _GRID]
    zeros = [sign * flint.fmpq(2) ** k for sign, k, value in signs if value == 0]
    for (sign, k, first), (other, end, second) in pairwise(signs):
        if sign == other and first and second and first != second:
            zeros += _bisected(node, name, sign, (k, end), first)
    return zeros


def _bisected(node: Node, name: str, sign: int, exponents: tuple[int, int], first: int) -> list[flint.fmpq]:
    """Return the zero between two powers of two, the integer that it is close to, and a point on each side of it."""
    k, end = exponents
    while abs(end - k) > 1:  # first the order of magnitude
        middle = (k + end) // 2
        k, end = (middle, end) if _sign(node, name, sign * flint.fmpq(2) ** middle) == first else (k, middle)
    low, high = (sign * flint.fmpq(2) ** each for each in (k, end))
    for _ in range(_COARSE):
        center = (low + high) / 2
        low, high = (center, high) if _sign(node, name, center) == first else (low, center)
    nearest = flint.fmpq((low + flint.fmpq(1, 2)).floor())
    found = [low - abs(low) / 16, low, low + abs(low) / 16]
    return [*found, nearest] if abs(nearest - low) <= 2 * abs(high - low) else found


def _sign(node: Node, name: str, value: flint.fmpq) -> int | None:
    """Return the sign of an expression at a point, 0 if it may be zero; None if it is not real there."""
    try:
        with precision(2 * _COARSE):
            ball = Evaluation().value(substitute(node, {name: Node("number", value=value)}))
    except UndefinedError:
        return None
    return (ball.real > 0) - (ball.real < 0) if ball.imag.contains(0) else None


def _zeros(node: Node, name: str) -> list[flint.fmpq] | None:
    """Return the real zeros of a polynomial, rational or close to it; none for a constant, None for anything else."""
    try:
        values = [fold(substitute(node, {name: number(k)})) for k in range(MAX_DEGREE + 3)]
        is_exact = all(value.op == "number" for value in values)
        polynomial = _interpolated([_approximated(value) for value in values], is_exact)
    except UndefinedError:
        return None
    if not 0 < polynomial.degree() <= MAX_DEGREE:
        return [] if is_exact and polynomial.degree() < 1 else None
    if polynomial.degree() == 1:
        return [-polynomial[0] / polynomial[1]]
    with precision(_BITS):
        roots = [root for root, _ in polynomial.numer().complex_roots()]
        return [_rational(root.real) for root in roots if root.imag.contains(0)]


def _interpolated(values: list[flint.fmpq], is_exact: bool) -> flint.fmpq_poly:
    """Return the polynomial with these values at 0, 1, 2, …, by Newton's forward differences."""
    polynomial, term = flint.fmpq_poly([]), flint.fmpq_poly([1])
    tiny = flint.fmpq(0) if is_exact else flint.fmpq(2) ** (-_BITS // 2)
    for k in range(len(values)):
        polynomial += (values[0] if abs(values[0]) > tiny else 0) * term
        term *= flint.fmpq_poly([flint.fmpq(-k, k + 1), flint.fmpq(1, k + 1)])
        values = [b - a for a, b in pairwise(values)]
    return polynomial


def _approximated(value: Node) -> flint.fmpq:
    """Return a real constant as a rational number, exactly if it is one.

    Raises:
        UndefinedError: It is not real.
    """
    if value.op == "number":
        return value.value
    with precision(_BITS):
        ball = Evaluation().value(value)
        if not ball.imag.contains(0):
            raise UndefinedError("expected a real number")
        return _rational(ball.real)


def _rational(ball: flint.arb) -> flint.fmpq:
    """Return the midpoint of a ball."""
    mantissa, exponent = ball.mid().man_exp()
    return flint.fmpq(mantissa) * flint.fmpq(2) ** int(exponent)
