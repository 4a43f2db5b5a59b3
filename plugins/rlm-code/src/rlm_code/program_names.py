"""Names in tests that belong to the program: those bound nowhere else."""

from __future__ import annotations

import ast
import builtins
import contextlib
import re
import sys
from collections.abc import Iterator, Sequence

from rlm_code.source import parse_source


def program_names(checks: Sequence[str], setup: str = "") -> tuple[list[str], list[str]]:
    """Return (names of the program, modules of the standard library that are used without an import).

    >>> program_names(["assert math.isclose(area(2), len(set(square(3))))"])
    (['area', 'square'], ['math'])
    """
    trees = [parse_source(source, "the test") for source in (setup, *checks)]
    bound = {name for tree in trees for name in _bound(tree)} | set(dir(builtins))
    used = dict.fromkeys(name for tree in trees for name in _used(tree) if name not in bound)
    owners = {
        node.value.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    modules = [name for name in used if name in owners and name in sys.stdlib_module_names]
    return [name for name in used if name not in modules], modules


def class_names(names: Sequence[str], tests: Sequence[str], solution: str | None = None) -> list[str]:
    """Return those of the program's `names` that are classes: as its `solution` defines them, or as `tests` use them.

    Without a solution a class is a name that begins with a capital and whose call has its attributes read. A program
    cannot choose.

    >>> tests = ["s = LRUCache()", "s.put(Sum(1, 2))", "add(1, 2).real", "d = DSU(2)", "d.union(0, 1)", "F(2).real"]
    >>> class_names(["LRUCache", "Sum", "add", "DSU", "F"], tests)
    ['LRUCache', 'DSU']
    """
    if solution:
        with contextlib.suppress(SyntaxError, ValueError):
            defined = {node.name for node in ast.parse(solution).body if isinstance(node, ast.ClassDef)}
            return [name for name in names if name in defined]
    nodes = [node for source in tests for node in ast.walk(parse_source(source, "the test"))]
    owners = [node.value for node in nodes if isinstance(node, ast.Attribute)]
    variables = {owner.id for owner in owners if isinstance(owner, ast.Name)}
    calls = [owner for owner in owners if isinstance(owner, ast.Call)]
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            targets = [target.id for target in node.targets if isinstance(target, ast.Name)]
            calls += [node.value] if variables & set(targets) else []
    called = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
    return [name for name in names if name in called and re.fullmatch(r"[A-Z][A-Za-z0-9]+", name)]


def imported_names(source: str, module: str) -> list[str]:
    """Return the names that tests import from the program's `module`.

    >>> imported_names("from solution import add, sub as minus", "solution")
    ['add', 'sub']
    """
    nodes = ast.walk(parse_source(source, "the tests"))
    return [a.name for node in nodes if isinstance(node, ast.ImportFrom) and node.module == module for a in node.names]


def test_functions(source: str) -> list[str]:
    """Return the functions of a test file that pytest would call."""
    body = parse_source(source, "the tests").body
    return [node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test")]


def _used(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id


def _bound(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
