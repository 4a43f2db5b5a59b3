"""Arithmetic as a tool may do it: numbers, + − * // and parentheses, and nothing that could take long or do harm."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

LONGEST = 200
LARGEST = 10**50
OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}


def computed(expression: str) -> int:
    """The value of an expression.

    Raises:
        ValueError: It is none, is too long, or a number in it becomes too large.

    >>> computed("(3+4)*-5")
    -35
    """
    if len(expression) > LONGEST:
        raise ValueError(f"an expression has at most {LONGEST} characters")
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError) as error:
        raise ValueError(f"{expression!r} cannot be computed: {error}") from error


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        found = node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        found = -_value(node.operand)
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        found = OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    else:
        raise ValueError("only whole numbers, + - * // and parentheses can be computed")
    if abs(found) > LARGEST:
        raise ValueError("a number became too large")
    return found
