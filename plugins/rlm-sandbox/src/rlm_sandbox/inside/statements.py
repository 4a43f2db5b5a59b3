"""Tests, compiled so that the program's changes of containers become visible between two statements."""

from __future__ import annotations

import ast
import re
from enum import StrEnum
from operator import itemgetter
from types import CodeType
from typing import Any, NamedTuple

SETTLE = "<settle>"
"""Name of the function that is called before each statement, with its `Changes`. No source can spell it."""
_EQUALITY = re.compile(r"^(?!.*not).*(assert|equal|close)", re.I)
"""Names of functions that pass if their arguments are equal."""


class Changes(StrEnum):
    """When tests see the changes of containers by a call."""

    NOW = "now"
    """The statement is one call, so that nothing is read after it: ``k = remove(xs, 3)``."""
    LATER = "later"
    """After the statement: in ``f(xs) == sorted(xs)`` the list is that before the call."""
    NEVER = "never"
    """The tests compare the result with a value that they compute from the argument later: ``r == sorted(xs)``."""


class Scope(NamedTuple):
    """Assignments and comparisons of a function of the tests, or of their module, in the order of lines.

    Args:
        assignments: Line, names that are assigned, names in the value.
        comparisons: Line, names in each operand.
    """

    assignments: list[tuple[int, set[str], set[str]]]
    comparisons: list[tuple[int, list[set[str]]]]


def compiled(source: str, filename: str) -> CodeType:
    """Return `source` as code that calls `SETTLE` before each statement; ``assert a and b`` is two statements.

    Raises:
        SyntaxError: It is not Python.
    """
    tree = ast.parse(source, filename)
    _settle_in(tree, _scope(tree))
    return compile(tree, filename, "exec", dont_inherit=True)


def _settle_in(node: Any, scope: Scope) -> None:
    """Put the calls into every list of statements below `node`; expressions have none."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        scope = _scope(node)
    for name in ("body", "orelse", "finalbody"):
        if isinstance(statements := getattr(node, name, None), list) and statements:
            setattr(node, name, _with_calls(statements, scope))
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        _settle_in(part, scope)


def _with_calls(body: list[ast.stmt], scope: Scope) -> list[ast.stmt]:
    statements: list[ast.stmt] = []
    for number, statement in enumerate(body):
        _settle_in(statement, scope)
        for part in _parts(statement):
            if not (number == 0 and _is_docstring(part)) and not _is_future_import(part):
                statements.append(_call(_changes(part, scope), part.lineno))
            statements.append(part)
    return statements


def _call(changes: Changes, line: int) -> ast.stmt:
    place: dict[str, Any] = {"lineno": line, "end_lineno": line, "col_offset": 0, "end_col_offset": 0}
    name, argument = ast.Name(SETTLE, ast.Load(), **place), ast.Constant(changes.value, **place)
    return ast.Expr(ast.Call(name, [argument], [], **place), **place)


def _parts(statement: ast.stmt) -> list[ast.stmt]:
    if not isinstance(statement, ast.Assert) or not _is_conjunction(statement.test):
        return [statement]
    test: Any = statement.test
    each = [ast.copy_location(ast.Assert(value, statement.msg), statement) for value in test.values]
    return [part for one in each for part in _parts(one)]


def _is_conjunction(test: ast.expr) -> bool:
    return isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And)


def _changes(statement: ast.stmt, scope: Scope) -> Changes:
    """Return when the changes of a statement are visible: at once for ``f(x)``, ``r = f(x)`` and ``with f(x)``."""
    expressions: list[Any] = []
    if isinstance(statement, ast.With):
        expressions = [item.context_expr for item in statement.items]
    elif isinstance(statement, ast.For):
        expressions = [statement.iter]
    elif isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign):
        expressions = [statement.value]
    calls = [node for each in expressions if each for node in ast.walk(each) if isinstance(node, ast.Call)]
    if _is_compared_with_arguments(statement, calls, scope):
        return Changes.NEVER
    return Changes.NOW if len(calls) == 1 and calls == expressions else Changes.LATER


def _is_compared_with_arguments(statement: ast.stmt, calls: list[ast.Call], scope: Scope) -> bool:
    """Return True if a later statement compares a result of the calls with a value computed from their arguments.

    A comparison that has both on one side, as ``xs[:k] == [1, 2]``, tests the change itself. So does one with a further
    call of the same function, as ``r == f(xs)``.
    """
    functions = _names(*(call.func for call in calls))
    results = _names(*_targets(statement))
    arguments = _names(*(each for call in calls for each in (*call.args, *call.keywords))) - results
    if not results or not arguments:
        return False
    for line, targets, names in scope.assignments:
        if line > statement.lineno and not names & functions:
            results |= targets if names & results else set()
            arguments |= targets if names & arguments else set()
    for line, sides in scope.comparisons:
        given = [bool(names & arguments) and not names & (results | functions) for names in sides]
        returned = [bool(names & results) and not names & arguments for names in sides]
        if line > statement.lineno and any(given) and any(returned):
            return True
    return False


def _scope(node: ast.AST) -> Scope:
    assignments, comparisons = [], []
    nodes: Any = ast.walk(node)
    for each in nodes:
        if targets := _targets(each):
            assignments.append((each.lineno, _names(*targets), _names(each.value)))
        elif operands := _operands(each):
            comparisons.append((each.lineno, [_names(operand) for operand in operands]))
    return Scope(sorted(assignments, key=itemgetter(0)), comparisons)


def _targets(node: Any) -> list[ast.expr]:
    """Return the targets of an assignment with a value."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) and node.value else []


def _operands(node: Any) -> list[ast.expr]:
    """Return the operands of ``==``, or the arguments of a function that compares them."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators] if isinstance(node.ops[0], ast.Eq) else []
    name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
    return node.args if _EQUALITY.search(name) else []


def _names(*nodes: ast.AST) -> set[str]:
    return {each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)}


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_future_import(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
