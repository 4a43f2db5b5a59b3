"""Check of numbers in answers, because some scorers accept constants: by an absolute tolerance, or as "nan"."""

from __future__ import annotations

import ast
import cmath
import re
from dataclasses import dataclass
from fractions import Fraction

TOLERANCE = Fraction(1, 100)
"""Largest relative error of a number, beside the scorer's own tolerance."""
MAX_DIGITS = 1000
_NOT_FINITE = re.compile(r"(?<![a-z])(nan|inf|infinity)j?(?![a-z])", re.IGNORECASE)

Number = Fraction | complex


def number(text: str) -> Number | None:
    """Parse a real or complex number: ``3/4``, ``1,000.5``, ``2 - 3i``; None otherwise.

    >>> number("3/4"), number("1,000"), number("2 - 3i"), number("a"), number("nan")
    (Fraction(3, 4), Fraction(1000, 1), (2-3j), None, None)
    """
    plain = "".join(text.split()).replace(",", "")
    if len(plain) > MAX_DIGITS or re.search(r"[eE][+-]?\d{4}", plain):
        return None
    try:
        return Fraction(plain)
    except (ValueError, ZeroDivisionError):
        pass
    try:
        value = complex(plain.strip("()").lower().replace("i", "j"))
    except ValueError:
        return None
    return value if cmath.isfinite(value) else None


def is_plausible(answer: str, reference: str) -> bool:
    """Return False for an answer that differs from a numeric reference, or has a "nan" that the reference lacks.

    >>> is_plausible("0", "0.03"), is_plausible("nan", "1 + 2i"), is_plausible("0.0312", "0.03125")
    (False, False, True)
    """
    if _NOT_FINITE.search(answer) and not _NOT_FINITE.search(reference):
        return False
    value, expected = number(answer), number(reference)
    if value is None or expected is None:
        return True  # the scorer decides
    if isinstance(value, Fraction) and isinstance(expected, Fraction):
        return abs(value - expected) <= TOLERANCE * abs(expected)
    try:
        return abs(complex(value) - complex(expected)) <= float(TOLERANCE) * abs(complex(expected))
    except OverflowError:
        return False


FUNCTIONS = frozenset(
    (
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "exp",
        "log",
        "ln",
        "sqrt",
        "Abs",
    )
)
OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.UAdd, ast.USub)
MAX_LENGTH = 4_000
"""Longest accepted text."""
MAX_POWER_DEPTH = 2
"""Largest nesting of powers within bases of powers. With `MAX_EXPONENT` it bounds numbers to a million digits."""
MAX_EXPONENT = 999


@dataclass(frozen=True)
class Arithmetic:
    """A grammar of numbers, + - * / and brackets.

    Args:
        variables: Also allow single letters, and powers with a small exponent.
        functions: Also allow elementary functions and pi. Integrals are excluded: one would restate the problem.
    """

    variables: bool = False
    functions: bool = False

    def accepts(self, text: str) -> bool:
        """Return True if `text` conforms to the grammar. The text is parsed and never executed.

        >>> [Arithmetic().accepts(text) for text in ("(1 + 2) * 3", "__import__('os')", "9**9**9")]
        [True, False, False]
        """
        if len(text) > MAX_LENGTH:  # deep nesting, whatever limit of recursion a library has set
            return False
        try:
            tree = ast.parse(text.strip(), mode="eval").body
            return "#" not in text and self._accepts(tree, MAX_POWER_DEPTH)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False

    def _accepts(self, node: ast.expr, power_depth: int) -> bool:
        if isinstance(node, ast.Constant):
            return type(node.value) in (int, float)
        if isinstance(node, ast.Name):
            return self.variables and (len(node.id) == 1 or (self.functions and node.id == "pi"))
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, OPERATORS) and self._accepts(node.operand, power_depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            base = self.variables and power_depth > 0 and self._accepts(node.left, power_depth - 1)
            return base and self._accepts(node.right, 0) and _is_small(node.right)
        if isinstance(node, ast.BinOp):
            return (
                isinstance(node.op, OPERATORS)
                and self._accepts(node.left, power_depth)
                and self._accepts(node.right, power_depth)
            )
        return isinstance(node, ast.Call) and self._is_function(node, power_depth)

    def _is_function(self, call: ast.Call, power_depth: int) -> bool:
        is_known = self.functions and isinstance(call.func, ast.Name) and call.func.id in FUNCTIONS
        return is_known and len(call.args) == 1 and not call.keywords and self._accepts(call.args[0], power_depth)


def _is_small(exponent: ast.expr) -> bool:
    """Return True if the numbers of an exponent stay small even when multiplied."""
    product = 1.0
    for node in ast.walk(exponent):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            product *= min(max(1.0, abs(node.value)), MAX_EXPONENT + 1.0)
    return product <= MAX_EXPONENT
