"""Exact rational arithmetic, ball arithmetic with a bound on its error at any precision (Arb), and rounded decimals."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import flint
from flint import acb, arb, ctx, fmpq, fmpz

from rlm_math.algebra.nodes import Node, UndecidedError, UndefinedError, is_decimal, substitute

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
    >>> from rlm_math.algebra.nodes import tokenize
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


def _binomial_coefficient(n: Any, k: Any) -> Any:
    is_whole = n.denominator == k.denominator == 1
    if not is_whole or not 0 <= n <= MAX_FACTORIAL or k < 0:
        raise UndefinedError("a binomial coefficient of negative, fractional or large numbers")
    return fmpq(fmpz.bin_uiui(n.numerator, k.numerator))


def _of_integers(function: Callable[[Any, Any], Any], *values: Any) -> Any:
    if any(value.denominator != 1 for value in values):
        raise UndefinedError("expected integers")
    return fmpq(abs(reduce(function, (value.numerator for value in values))))


_RULES: dict[str, Callable[..., Any]] = {
    "+": lambda *values: sum(values, fmpq(0)),
    "*": lambda a, b: a * b,
    "/": _quotient,
    "-": lambda a: -a,
    "^": _power,
    "root": _root,
    "factorial": _factorial,
    "binomial": _binomial_coefficient,
    "abs": abs,
    "floor": lambda a: fmpq(a.floor()),
    "ceil": lambda a: fmpq(a.ceil()),
    "gcd": partial(_of_integers, fmpz.gcd),
    "lcm": partial(_of_integers, fmpz.lcm),
    "max": max,
    "min": min,
    "mod": lambda a, b: a - b * fmpq((a / b).floor()),
}
"""Operation → its value on rational numbers; None: it has no rational value."""


MAX_MAGNITUDE = 1 << 21
"""Largest binary exponent of a value."""

HIGH_PRECISION = 2048
"""Bits from which on a ball that contains one integer and hardly more is this integer."""


class Evaluation:
    """One evaluation of an expression without variables.

    Attributes:
        size: Sum of the binary exponents of all intermediate values: how much of the precision they may use up.
        is_real: False if a real function left its real domain.
    """

    def __init__(self) -> None:
        self.size = 0
        self.is_real = True

    def value(self, node: Node) -> Any:
        """Return the ball of an expression at the current precision.

        Raises:
            UndefinedError: It has no value, or the precision does not suffice to find one.
        """
        result = self._value(node)
        if not result.is_finite():
            raise UndefinedError("not finite")
        self.size += magnitude(result)
        if node.op == "number":
            self.size += bits(node.value)
        return result

    def _value(self, node: Node) -> Any:
        if node.op == "number":
            return acb(node.value)
        if node.op == "symbol":
            if node.value not in _CONSTANTS:
                raise UndefinedError(f"'{node.value}' has no value")
            return _CONSTANTS[node.value]()
        args = [self.value(each) for each in node.args]
        if node.op == "+":
            return sum(args[1:], args[0])
        if node.op == "^":
            return self._power(node, *args)
        if node.op == "root":
            return self._root(*args)
        if node.op == "apply":
            return _unknown_function(node.value, args[0])
        if node.op not in _FUNCTIONS:
            raise UndefinedError(node.op)
        if node.op in ("tanh", "coth"):
            self.size += magnitude(args[0].exp())  # their distance from ±1
        self._check_domain(node.op, args)
        return _FUNCTIONS[node.op](*args)

    def _power(self, node: Node, base: Any, exponent: Any) -> Any:
        integer = exponent.unique_fmpz() if exponent.is_exact() else None
        if integer is not None and abs(integer) < MAX_MAGNITUDE:
            if base.contains(0) and integer <= 0:
                raise UndefinedError("zero to a power that is not positive")
            return base ** int(integer)
        if _is_negative(base):
            if node.args[1].op == "number" and node.args[1].value.denominator % 2:
                power = (-base) ** exponent
                return -power if node.args[1].value.numerator % 2 else power
            self.is_real = False
        return base**exponent

    def _root(self, value: Any, index: Any) -> Any:
        integer = index.unique_fmpz() if index.is_exact() else None
        if integer is None or integer == 0:
            raise UndefinedError("a root with an index that is no integer")
        if _is_negative(value) and integer % 2:
            return -((-value) ** (1 / index))
        self.is_real = self.is_real and not _is_negative(value)
        return value.sqrt() if integer == 2 else value ** (1 / index)

    def _check_domain(self, op: str, args: list[Any]) -> None:
        value = args[0]
        if op in ("ln", "lg", "log") and any(_is_negative(each) for each in args):
            self.is_real = False
        if op in ("arcsin", "arccos") and value.imag.is_zero() and abs(value.real) > 1:
            self.is_real = False
        if op in ("max", "min", "floor", "ceil", "mod") and not all(each.imag.is_zero() for each in args):
            raise UndefinedError("expected real numbers")


def magnitude(ball: Any) -> int:
    """Return the binary exponent of a value, without its sign."""
    upper = ball.abs_upper()
    if not upper.is_finite():
        raise UndecidedError("too large")
    mantissa, exponent = upper.man_exp()
    result = abs(int(exponent) + int(mantissa).bit_length())
    if result > MAX_MAGNITUDE:
        raise UndecidedError("too large")
    return result


def _is_negative(ball: Any) -> bool:
    return ball.imag.is_zero() and ball.real < 0


def _unknown_function(name: str, argument: Any) -> Any:
    """Return the value of a function of which only the name is known: a fixed generic polynomial."""
    digest = hashlib.sha256(name.encode()).digest()
    return sum((acb(fmpq(digest[k] + 1, digest[k + 9] + 2)) * argument**k for k in range(8)), acb(0))


def _integer(value: arb) -> arb | None:
    integer = value.unique_fmpz() if ctx.prec >= HIGH_PRECISION else None
    is_close = integer is not None and value.rad() < arb(2) ** (-ctx.prec // 4)
    return arb(integer) if is_close else None


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "pi": acb.pi,
    "e": lambda: acb(1).exp(),
    "i": lambda: acb(0, 1),
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "-": lambda x: -x,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "abs": lambda x: acb(abs(x)),
    "ln": lambda x: x.log(),
    "lg": lambda x: x.log() / acb(10).log(),
    "log": lambda x, base: x.log() / base.log(),
    "exp": lambda x: x.exp(),
    "factorial": lambda x: (x + 1).gamma(),
    "binomial": lambda n, k: (n + 1).gamma() * (k + 1).rgamma() * (n - k + 1).rgamma(),
    "floor": lambda x: acb(x.real.floor() if (k := _integer(x.real)) is None else k),
    "ceil": lambda x: acb(x.real.ceil() if (k := _integer(x.real)) is None else k),
    "max": lambda *values: acb(reduce(arb.max, (value.real for value in values))),
    "min": lambda *values: acb(reduce(arb.min, (value.real for value in values))),
    "arcsin": lambda x: x.asin(),
    "arccos": lambda x: x.acos(),
    "arctan": lambda x: x.atan(),
    "arccot": lambda x: acb.pi() / 2 - x.atan(),
    "arcsec": lambda x: (1 / x).acos(),
    "arccsc": lambda x: (1 / x).asin(),
    "arcosh": lambda x: x.acosh(),
    "arsinh": lambda x: x.asinh(),
    "artanh": lambda x: x.atanh(),
    **{
        name: (lambda x, name=name: getattr(x, name)())
        for name in ["sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "coth"]
    },
}


MIN_DIGITS = 3
"""Digits of a decimal reference that may be rounded."""
EXACT_DIGITS, FLOAT_DIGITS = 15, 17
"""Digits of a float that are right, and digits that are printed."""


class Rules(NamedTuple):
    """The knobs of the reward that define equality.

    Args:
        absolute, relative: Tolerances, the second relative to the reference.
        digits: Digits of a decimal for an exact number.
        ordered: Whether tuples are ordered.
        ends_count: Whether (1, 2] and [1, 2) differ.
    """

    absolute: float = 0.0
    relative: float = 0.0
    digits: int = 0
    ordered: bool = True
    ends_count: bool = True


EXACT = Rules()


def is_near(gold: Node, a: Node, answer: Node, b: Node, rules: Rules) -> bool:
    """Return True if the answer is within a tolerance, is right to its digits, or rounds to a decimal reference."""
    with flint.ctx.workprec(HIGH_PRECISION):
        expected, given = Evaluation().value(a), Evaluation().value(b)
        distance = abs(given - expected)
        bounds = [rules.absolute, rules.relative * abs(expected)] if any(rules[:2]) else []
        shown = _places(answer)
        if rules.digits and shown is not None and not is_decimal(gold) and b.op == "number":
            digits = _significant(b, shown)
            noise = digits - EXACT_DIGITS if EXACT_DIGITS < digits <= FLOAT_DIGITS and not _terminates(a) else 0
            last = flint.arb(10) ** -(shown - noise)
            if digits >= rules.digits and _shows(given, expected, last, is_noisy=noise > 0):
                return True
        shown = _places(gold)
        is_rounded = shown is not None and a.op == "number" and a.value.denominator != 1 and not is_decimal(answer)
        if is_rounded and shown is not None and _significant(a, shown) >= MIN_DIGITS and not _terminates(b):
            last = flint.arb(10) ** -shown
            bounds.append(last / 2)
            if 0 < rules.digits <= _significant(a, shown) and _shows(expected, given, last):
                return True
        return any(distance <= bound for bound in bounds)


def _shows(decimal: Any, exact: Any, last: Any, *, is_noisy: bool = False) -> bool:
    """Return True if a decimal is rounded or cut off in the place `last`; with noise, if it differs by less."""
    is_cut = abs(decimal) <= abs(exact) or is_noisy
    distance = abs(decimal - exact)
    return bool(distance < last) and (is_cut or not distance > last / 2)


def _places(node: Node) -> int | None:
    """Return the decimal places of a decimal; None for anything else."""
    if node.op == "-":
        return _places(node.args[0])
    return node.places or None if node.op == "number" else None


def _significant(value: Node, places: int) -> int:
    return len(str(abs(value.value) * flint.fmpq(10) ** places))


def _terminates(value: Node) -> bool:
    """Return True for a number that a decimal can be equal to."""
    if value.op != "number":
        return False
    denominator = value.value.denominator
    return bool(10 ** int(denominator.bit_length()) % denominator == 0)
