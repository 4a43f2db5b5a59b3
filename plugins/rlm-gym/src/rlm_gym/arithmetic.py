"""Is a text arithmetic and nothing else? Asked before sympy, which reads an expression by executing it."""

from __future__ import annotations

import ast
from dataclasses import dataclass

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
SIGNS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.UAdd, ast.USub)
POWERS = 2
"""How deep powers may stand in the bases of powers; with `EXPONENT` it keeps numbers below a million digits."""
EXPONENT = 999


@dataclass(frozen=True)
class Arithmetic:
    """Numbers, + - * / and brackets.

    Args:
        variables: And single letters, and powers with a small exponent.
        functions: And elementary functions, and pi. No integral: whoever writes one restates the problem.
    """

    variables: bool = False
    functions: bool = False

    def fits(self, text: str) -> bool:
        """Whether `text` is that; nothing of it is executed.

        >>> Arithmetic().fits("(1 + 2) * 3"), Arithmetic().fits("__import__('os')"), Arithmetic().fits("9**9**9")
        (True, False, False)
        """
        try:
            tree = ast.parse(text.strip(), mode="eval").body
            return "#" not in text and self._fits(tree, POWERS)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False

    def _fits(self, node: ast.expr, powers: int) -> bool:
        if isinstance(node, ast.Constant):
            return type(node.value) in (int, float)
        if isinstance(node, ast.Name):
            return self.variables and (len(node.id) == 1 or (self.functions and node.id == "pi"))
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, SIGNS) and self._fits(node.operand, powers)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            base = self.variables and powers > 0 and self._fits(node.left, powers - 1)
            return base and self._fits(node.right, 0) and _small(node.right)
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, SIGNS) and self._fits(node.left, powers) and self._fits(node.right, powers)
        return isinstance(node, ast.Call) and self._is_function(node, powers)

    def _is_function(self, call: ast.Call, powers: int) -> bool:
        known = self.functions and isinstance(call.func, ast.Name) and call.func.id in FUNCTIONS
        return known and len(call.args) == 1 and not call.keywords and self._fits(call.args[0], powers)


def _small(exponent: ast.expr) -> bool:
    """Whether the numbers of an exponent stay small, even if they are multiplied."""
    product = 1.0
    for node in ast.walk(exponent):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            product *= min(max(1.0, abs(node.value)), EXPONENT + 1.0)
    return product <= EXPONENT
