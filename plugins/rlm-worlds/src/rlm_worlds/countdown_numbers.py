"""Countdown: an expression of some of the given numbers that makes a target."""

from __future__ import annotations

import ast
import operator
import random
from collections import Counter
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from rlm_worlds.puzzle import Puzzle

MAX_LENGTH = 200
"""Characters of an answer."""
MAX_TARGET = 999
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def generate(rng: random.Random, count: int) -> Puzzle | None:
    """Return a puzzle of `count` numbers whose solution uses all of them; None if this draw has no fitting target."""
    numbers = [rng.randint(1, 25) for _ in range(count)]
    parts = [str(number) for number in numbers]
    while len(parts) > 1:
        first, second = (parts.pop(rng.randrange(len(parts))) for _ in range(2))
        parts.append(f"({first} {rng.choice('+-*/')} {second})")
    solution = parts[0][1:-1] if count > 1 else parts[0]
    target = value(solution)
    if target is None or target.denominator != 1 or not 1 <= target <= MAX_TARGET or int(target) in numbers:
        return None
    listed = ", ".join(map(str, numbers))
    question = (
        f"Make {target} from the numbers {listed}. Use each number at most once, with + - * / and parentheses. "
        "Answer with the expression alone."
    )
    return Puzzle(question, solution, {"numbers": numbers, "target": int(target)})


def value(text: str, numbers: list[int] | None = None) -> Fraction | None:
    """Return the exact value of an expression; None for other text, or if it uses other numbers than the given ones.

    >>> str(value("(1 + 2) * 3 / 6")), value("2 ** 3"), value("3 + 3", [3, 4]), value("1/0")
    ('3/2', None, None, None)
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body if len(text) <= MAX_LENGTH and text.isascii() else None
        if tree is None or "_" in text or "#" in text:
            return None
        used = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)]
        if numbers is not None and Counter(used) - Counter(numbers):
            return None
        return _value(tree)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError, TypeError):
        return None


def _value(node: ast.expr) -> Fraction:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError("no arithmetic")


def is_solution(task: Mapping[str, Any], answer: str) -> bool:
    """Return True if an expression makes the target from the given numbers.

    >>> task = {"numbers": [2, 3, 4], "target": 14}
    >>> [is_solution(task, text) for text in ("2 + 3 * 4", "14", "2 + 4 * 3 * 1", "7 * 2")]
    [True, False, False, False]
    """
    return value(answer.partition("=")[0], task["numbers"]) == task["target"] and _is_consistent(answer, task)


def _is_consistent(answer: str, task: Mapping[str, Any]) -> bool:
    """Return True if an answer has no equals sign, or one before the target."""
    _, sign, result = answer.partition("=")
    return not sign or result.strip() == str(task["target"])
