"""Evaluation with ball arithmetic: a complex number with a bound on its error, at any precision (Arb)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import reduce
from typing import Any

from flint import acb, arb, ctx, fmpq

from rlm_math.algebra.exact import bits
from rlm_math.algebra.nodes import Node, UndecidedError, UndefinedError

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


def _binomial(n: Any, k: Any) -> Any:
    return (n + 1).gamma() * (k + 1).rgamma() * (n - k + 1).rgamma()


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
    "binomial": _binomial,
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
