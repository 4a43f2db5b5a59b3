"""Exact rational arithmetic: every part of an expression that has a rational value is replaced by it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any

from flint import fmpq, fmpz

from rlm_math.algebra.nodes import Node, UndecidedError, UndefinedError, substitute

MAX_BITS = 1 << 22
"""Largest size of a number."""
MAX_FACTORIAL = 50_000
MAX_TERMS = 2000
SERIES = {"sum": "+", "product": "*"}
"""Operation with an index → the operation that joins its terms."""
_UNEVALUATED = {"gcd", "lcm"}
"""Symmetric functions that have no value at points that are no integers: equal if their arguments are."""


def fold(node: Node) -> Node:
    """Return the expression with its rational parts computed; a whole rational expression becomes one number.

    >>> from rlm_math.algebra.parser import parse_expression
    >>> from rlm_math.algebra.tokens import tokenize
    >>> str(fold(parse_expression(tokenize("50! - 1"))).value)[-9:]
    '999999999'

    Raises:
        UndefinedError: A part of it has no value, or one that is too large.
    """
    if not node.args:
        return node
    if node.op in SERIES:
        return _series(node)
    args = tuple(map(fold, node.args))
    rule = _RULES.get(node.op)
    if rule is not None and all(each.op == "number" for each in args):
        value = rule(*(each.value for each in args))
        if value is not None:
            return Node("number", value=value, places=args[0].places if node.op == "-" else 0)
    if node.op in _UNEVALUATED:
        return Node("symbol", value=f"{node.op}{sorted(map(str, args))}")
    if node.op == "cross":  # its factors cannot be exchanged
        return Node("symbol", value=f"cross{[*map(str, args)]}")
    if node.op == "^" and args[1].op == "number" and args[0].op != "number" and abs(args[1].value) > MAX_BITS:
        raise UndecidedError("a power that is too large")
    return Node(node.op, args, node.value, node.places)


def _series(node: Node) -> Node:
    low, high = (fold(each) for each in node.args[1:])
    if low.op != "number" or high.op != "number":
        return Node(node.op, (node.args[0], low, high), node.value)
    if low.value.denominator != 1 or high.value.denominator != 1 or high.value - low.value >= MAX_TERMS:
        raise UndefinedError("a series with limits that are no integers, or too far apart")
    total = Node("number", value=fmpq(node.op == "product"))
    for n in range(int(low.value.numerator), int(high.value.numerator) + 1):
        term = substitute(node.args[0], {node.value: Node("number", value=fmpq(n))})
        total = fold(Node(SERIES[node.op], (total, term)))
    return total


def bits(value: Any) -> int:
    """Return the size of a rational number in bits."""
    return int(value.numerator.bit_length()) + int(value.denominator.bit_length())


def _quotient(a: Any, b: Any) -> Any:
    if b == 0:
        raise UndefinedError("division by zero")
    return a / b


def _power(base: Any, exponent: Any) -> Any:
    if exponent.denominator != 1:
        root = _root(base, fmpq(exponent.denominator))
        return None if root is None else _power(root, fmpq(exponent.numerator))
    if base == 0 and exponent <= 0:
        raise UndefinedError("zero to a power that is not positive")
    if abs(exponent.numerator) * bits(base) > 2 * MAX_BITS:
        raise UndecidedError("a power that is too large")
    return base ** int(exponent.numerator)


def _root(value: Any, index: Any) -> Any:
    if index.denominator != 1 or index == 0:
        raise UndefinedError("a root with an index that is no integer")
    n = abs(int(index.numerator))
    if (value < 0 and n % 2 == 0) or n > 10_000:
        return None
    above, below = abs(value.numerator).root(n), value.denominator.root(n)
    if above**n != abs(value.numerator) or below**n != value.denominator:
        return None
    root = fmpq(above, below) * (-1 if value < 0 else 1)
    return 1 / root if index < 0 else root


def _factorial(value: Any) -> Any:
    if value.denominator != 1 or not 0 <= value <= MAX_FACTORIAL:
        raise UndefinedError("a factorial of a negative, fractional or large number")
    return fmpq(fmpz.fac_ui(value.numerator))


def _binomial(n: Any, k: Any) -> Any:
    is_whole = n.denominator == k.denominator == 1
    if not is_whole or not 0 <= n <= MAX_FACTORIAL or k < 0:
        raise UndefinedError("a binomial coefficient of negative, fractional or large numbers")
    return fmpq(fmpz.bin_uiui(n.numerator, k.numerator))


def _of_integers(function: Callable[[Any, Any], Any], *values: Any) -> Any:
    if any(value.denominator != 1 for value in values):
        raise UndefinedError("expected integers")
    return fmpq(abs(reduce(function, (value.numerator for value in values))))


def _modulo(a: Any, b: Any) -> Any:
    return a - b * fmpq((a / b).floor())


_RULES: dict[str, Callable[..., Any]] = {
    "+": lambda *values: sum(values, fmpq(0)),
    "*": lambda a, b: a * b,
    "/": _quotient,
    "-": lambda a: -a,
    "^": _power,
    "root": _root,
    "factorial": _factorial,
    "binomial": _binomial,
    "abs": abs,
    "floor": lambda a: fmpq(a.floor()),
    "ceil": lambda a: fmpq(a.ceil()),
    "gcd": partial(_of_integers, fmpz.gcd),
    "lcm": partial(_of_integers, fmpz.lcm),
    "max": max,
    "min": min,
    "mod": _modulo,
}
"""Operation → its value on rational numbers; None: it has no rational value."""
