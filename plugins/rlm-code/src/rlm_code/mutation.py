"""Semantic mutants of a program: a number off by one, another operator, a swapped branch, a condition negated."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.FloorDiv, ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def mutated(source: str, rng: random.Random, count: int) -> str | None:
    """Return a program with `count` random changes; None if it has no place for one.

    >>> mutated("def f(x): return x + 1", random.Random(0), 1)
    'def f(x):\\n    return x - 1'
    """
    tree = ast.parse(source)
    for _ in range(count):
        changes = [change for node in ast.walk(tree) for change in _changes(node, rng)]
        if not changes:
            return None
        rng.choice(changes)()
    return ast.unparse(ast.fix_missing_locations(tree))


def _changes(node: ast.AST, rng: random.Random) -> list[Callable[[], None]]:
    """Return the changes of one node; each is made when it is called."""

    def set_field(name: str, value: object) -> Callable[[], None]:
        return lambda: setattr(node, name, value)

    if isinstance(node, ast.Constant) and type(node.value) is int:
        return [set_field("value", node.value + rng.choice([-1, 1]))]
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        return [set_field("value", not node.value)]
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        return [set_field("ops", [_COMPARISONS[type(node.ops[0])](), *node.ops[1:]])]
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _OPERATORS:
        return [set_field("op", _OPERATORS[type(node.op)]())]
    if isinstance(node, ast.BoolOp):
        return [set_field("op", ast.And() if isinstance(node.op, ast.Or) else ast.Or())]
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        negated = set_field("test", ast.UnaryOp(ast.Not(), copy.deepcopy(node.test)))
        if isinstance(node, ast.IfExp):
            return [negated, lambda: _swap(node)]
        return [negated, set_field("body", [ast.Pass()])] if isinstance(node, ast.If) else [negated]
    if isinstance(node, ast.Return) and node.value is not None:
        return [set_field("value", ast.Constant(None))]
    if isinstance(node, ast.UnaryOp):
        return [set_field("op", ast.UAdd() if isinstance(node.op, ast.USub) else node.op)]
    return []


def _swap(node: ast.IfExp) -> None:
    node.body, node.orelse = node.orelse, node.body
