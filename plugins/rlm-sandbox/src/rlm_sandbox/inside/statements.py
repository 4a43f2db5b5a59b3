"""Tests, compiled so that the program's changes of containers become visible between two statements."""

from __future__ import annotations

import ast
from types import CodeType
from typing import Any

SETTLE = "<settle>"
"""Name of the function that is called before each statement, with True if that is one call. No source can spell it."""


def compiled(source: str, filename: str) -> CodeType:
    """Return `source` as code that calls `SETTLE` before each statement; ``assert a and b`` is two statements.

    Raises:
        SyntaxError: It is not Python.
    """
    tree = ast.parse(source, filename)
    _settle_in(tree)
    return compile(tree, filename, "exec", dont_inherit=True)


def _settle_in(node: Any) -> None:
    """Put the calls into every list of statements below `node`; expressions have none."""
    for name in ("body", "orelse", "finalbody"):
        if isinstance(statements := getattr(node, name, None), list) and statements:
            setattr(node, name, _with_calls(statements))
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        _settle_in(part)


def _with_calls(body: list[ast.stmt]) -> list[ast.stmt]:
    statements: list[ast.stmt] = []
    for number, statement in enumerate(body):
        _settle_in(statement)
        for part in _parts(statement):
            if not (number == 0 and _is_docstring(part)) and not _is_future_import(part):
                statements.append(_call(_is_one_call(part), part.lineno))
            statements.append(part)
    return statements


def _call(is_one_call: bool, line: int) -> ast.stmt:
    place: dict[str, Any] = {"lineno": line, "end_lineno": line, "col_offset": 0, "end_col_offset": 0}
    name, argument = ast.Name(SETTLE, ast.Load(), **place), ast.Constant(is_one_call, **place)
    return ast.Expr(ast.Call(name, [argument], [], **place), **place)


def _parts(statement: ast.stmt) -> list[ast.stmt]:
    if not isinstance(statement, ast.Assert) or not _is_conjunction(statement.test):
        return [statement]
    test: Any = statement.test
    each = [ast.copy_location(ast.Assert(value, statement.msg), statement) for value in test.values]
    return [part for one in each for part in _parts(one)]


def _is_conjunction(test: ast.expr) -> bool:
    return isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)


def _is_one_call(statement: ast.stmt) -> bool:
    """Return True for ``f(x)``, ``r = f(x)``, ``for r in f(x)`` and ``with f(x)``: nothing is read after the call."""
    expressions: list[Any] = []
    if isinstance(statement, ast.With):
        expressions = [item.context_expr for item in statement.items]
    elif isinstance(statement, ast.For):
        expressions = [statement.iter]
    elif isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign):
        expressions = [statement.value]
    calls = [node for each in expressions if each for node in ast.walk(each) if isinstance(node, ast.Call)]
    return len(calls) == 1 and calls == expressions


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_future_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
