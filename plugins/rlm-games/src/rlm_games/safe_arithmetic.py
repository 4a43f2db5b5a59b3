"""Safe evaluation of integer arithmetic: + − * // and parentheses, with bounds on length and magnitude."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

MAX_LENGTH = 200
MAX_MAGNITUDE = 10**50
OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def evaluate(expression: str) -> int:
    """Return the value of an expression.

    Raises:
        ValueError: It is not an expression, it is too long, or a number in it becomes too large.

    >>> evaluate("(3+4)*-5")
    -35
    """
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"expected at most {MAX_LENGTH} characters")
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError) as error:
        raise ValueError(f"{expression!r} cannot be computed: {error}") from error


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        value = node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = -_value(node.operand)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        value = OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    else:
        raise ValueError("only whole numbers, + - * // and parentheses can be computed")
    if abs(value) > MAX_MAGNITUDE:
        raise ValueError("a number became too large")
    return value
