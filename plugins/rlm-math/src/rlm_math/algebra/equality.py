"""Decision whether two expressions are equal.

Rational numbers are compared exactly, and so are rational functions, at random rational points. Everything else is
evaluated with ball arithmetic: two balls that do not overlap refute equality. Two that overlap show it at a precision
far beyond what the operations of both expressions can use up. Where that precision is out of reach, nothing is equal.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import flint

from rlm_math.algebra.evaluation import EXACT, HIGH_PRECISION, SERIES, Evaluation, Rules, bits, fold, is_near
from rlm_math.algebra.nodes import (
    INFINITY,
    MINUS_INFINITY,
    Node,
    UndecidedError,
    UndefinedError,
    number,
    substitute,
    variables,
    walk,
)

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


LOW, HIGH = 128, HIGH_PRECISION
"""Bits of the first evaluation, and of the second beside four times the size of the expressions."""
MAX_PRECISION = 1 << 18
POINTS, DRAWS = 13, 78
"""Points at which expressions with variables are compared, and attempts to find them."""
_SCALES = [(1, 0), (-1, 0), (-1, None), (1, None), (1, -3), (-1, 6), (1, 6), (0, 1)]
_SCALES += [(1, 10), (1, 11), (1, 12), (1, 1100), (-1, 1100)]
"""Signs (0: either) and binary exponents of the points; None: beyond all constants of the expressions."""
_FARTHEST_INTEGER = 12
"""Binary exponent up to which an integer is chosen beyond all constants: its factorial is computed."""


def are_equal(gold: Node, answer: Node, rules: Rules = EXACT) -> bool:
    """Return True if both expressions are equal; False if they differ, or if neither can be shown."""
    if INFINITY in (*walk(gold), *walk(answer)):
        return gold == answer and gold in (INFINITY, MINUS_INFINITY)  # ∞ − ∞ is no number
    try:
        a, b = fold(gold), fold(answer)
        names = sorted(variables(a) | variables(b))
        if not names:
            return _are_equal_constants(a, b) or is_near(gold, a, answer, b, rules)
        return _are_equal_functions(a, b, names)
    except (UndefinedError, ZeroDivisionError, OverflowError):
        return False


def compare(a: Node, b: Node) -> int:
    """Return the sign of a − b of two real constants.

    Raises:
        UndefinedError: It cannot be determined.
    """
    a, b = fold(a), fold(b)
    if _are_equal_constants(a, b):
        return 0
    with flint.ctx.workprec(_second_precision(a, b)):
        difference = Evaluation().value(a) - Evaluation().value(b)
    if difference.imag.contains(0) and not difference.real.contains(0):
        return 1 if difference.real > 0 else -1
    raise UndefinedError("no order")


def _are_equal_constants(a: Node, b: Node) -> bool:
    if a.op == b.op == "number":
        return bool(a.value == b.value)
    with flint.ctx.workprec(LOW):
        if not _difference(a, b).contains(0):
            return False
    digits = _second_precision(a, b)
    with flint.ctx.workprec(digits):
        difference = _difference(a, b)
        return bool(difference.contains(0)) and bool(difference.abs_upper() < flint.arb(2) ** (-digits // 4))


def _difference(a: Node, b: Node) -> Any:
    try:
        return Evaluation().value(a) - Evaluation().value(b)
    except UndefinedError:
        if flint.ctx.prec > LOW:
            raise
        return flint.acb(0)


def _second_precision(a: Node, b: Node) -> int:
    """Return a precision in bits that leaves no room for two different values of expressions of this size."""
    for digits in (LOW, 16 * LOW):
        evaluation = Evaluation()
        with flint.ctx.workprec(digits):
            try:
                evaluation.value(a)
                evaluation.value(b)
            except UndefinedError:
                if digits != LOW:
                    raise
                continue
        break
    if HIGH + 4 * evaluation.size > MAX_PRECISION:
        raise UndecidedError("too large")
    return HIGH + 4 * evaluation.size


def _are_equal_functions(a: Node, b: Node, names: list[str]) -> bool:
    """Compare at random points: real ones, and complex ones if no value is real; n is an integer in (−1)^n."""
    whole = _integer_names(a) | _integer_names(b)
    for kind in ("real", "complex"):
        rng, compared, far = random.Random(f"{a}{b}{kind}"), 0, _reach(a, b)
        for draw in range(DRAWS):
            point = {name: _coordinate(rng, "integer" if name in whole else kind, draw, far) for name in names}
            verdict = _are_equal_at(a, b, point, kind)
            if verdict is False:
                return False
            compared += verdict is True
            if compared == POINTS:
                is_whole = kind == "complex" or _are_equal_at_corners(a, b, point, whole)
                return is_whole and not has_zero_base((a, b), point)
    return False


def _are_equal_at_corners(a: Node, b: Node, point: dict[str, Node], whole: set[str]) -> bool:
    for each in corner_points((a, b), point):
        nearest = {name: _whole(value) if name in whole else value for name, value in each.items()}
        if _are_equal_at(a, b, nearest, "real", undecided=False) is False:
            return False
    return True


def _whole(value: Node) -> Node:
    return Node("number", value=flint.fmpq(max(1, value.value.ceil()))) if value.op == "number" else value


def _reach(a: Node, b: Node) -> int:
    """Return the binary exponent of a number larger than all constants of two expressions, up to a limit."""
    values = [each.value for each in (*walk(a), *walk(b)) if each.op == "number"]
    return min(max((bits(value) for value in values), default=1) + 3, 64)


def _integer_names(node: Node) -> set[str]:
    """Return the variables in exponents of negative numbers, limits of series, factorials and binomials."""
    limits = [limit for each in walk(node) if each.op in SERIES for limit in each.args[1:]]
    counts = [count for each in walk(node) if each.op in ("factorial", "binomial") for count in each.args]
    powers = [each.args for each in walk(node) if each.op == "^"]
    exponents = [exponent for base, exponent in powers if base.op == "number" and base.value < 0]
    return {name for each in (*limits, *counts, *exponents) for name in variables(each)}


def _coordinate(rng: random.Random, kind: str, draw: int, far: int) -> Node:
    sign, exponent = _SCALES[draw % len(_SCALES)]
    if kind == "integer":
        least = 1 << far if exponent is None and far <= _FARTHEST_INTEGER else 0
        return Node("number", value=flint.fmpq(least + rng.randint(1, 12 + 6 * draw)))
    sign = sign or rng.choice([1, -1])
    scale = flint.fmpq(2) ** (far if exponent is None else exponent)
    parts = [Node("number", value=sign * scale * _random(rng)) for _ in "ab"]
    if kind == "real":
        return parts[0]
    return Node("+", (parts[0], Node("*", (parts[1], Node("symbol", value="i")))))


def _random(rng: random.Random) -> flint.fmpq:
    """Return a number up to 4 as an odd number by an even one, so that a negative number to it is not real.

    The denominator has a random factor: sin(2^20 πx) is 0 at all k/2^14.
    """
    return flint.fmpq(rng.getrandbits(130) | 1, (rng.randrange(1 << 47, 1 << 48) | 1) << 81)


def _are_equal_at(a: Node, b: Node, point: dict[str, Node], kind: str, *, undecided: bool | None = None) -> bool | None:
    """Compare at a point; None if one of them has no value there, or none that is real; `undecided` if too large."""
    try:
        first, second = fold(substitute(a, point)), fold(substitute(b, point))
        if first.op != "number" or second.op != "number":
            is_real = _is_real(first), _is_real(second)
            if kind == "real" and is_real == (False, False):
                return None
            if kind == "real" and is_real[0] != is_real[1]:
                return False
        return _are_equal_constants(first, second)
    except UndecidedError:
        return undecided
    except (UndefinedError, ZeroDivisionError):
        return None


def _is_real(node: Node) -> bool:
    evaluation = Evaluation()
    with flint.ctx.workprec(LOW):
        evaluation.value(node)
    return evaluation.is_real
