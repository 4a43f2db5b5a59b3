"""Formats of the column `tests`: four kinds, as JSON or as the equal mapping.

- ``{"stdin": [["1 2\\n", "3\\n"], …]}``: standard input, standard output
- ``{"calls": {"name": "add", "cases": [[[1, 2], 3], …]}}``: arguments, value
- ``{"asserts": {"setup": "import math", "names": ["add"], "checks": ["assert add(1, 2) == 3", …]}}``
- ``{"checker": {"source": "def check(given, output): …", "inputs": ["5\\n", …]}}``: a function checks the output

Each may have a ``prelude``: source that precedes the program. ``asserts`` may list ``classes``: those of `names` that
are classes, by default as the tests use them. Only objects that tests construct from these have operators.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlm_sandbox import Call, Check, Input, Stdin


class BadTests(Exception):
    """Tests that are malformed or test nothing; the message gives the reason."""


def parse_source(source: str, what: str) -> ast.Module:
    """Parse test code."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise BadTests(f"{what} is not Python: {error}") from None


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


KINDS = ("stdin", "calls", "asserts", "checker")


@dataclass(frozen=True, eq=False)
class Tests:
    """The tests of one problem.

    Args:
        inputs: Sandbox input of each case.
        expected: Expected value of each case; True for asserts and for a checker.
        prelude: Source that precedes the program.
        checker: Source of ``check(given, output)``, if any.
    """

    inputs: tuple[Input, ...]
    expected: tuple[Any, ...]
    prelude: str = ""
    checker: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names that the program must define: of functions, or of their classes."""
        case = self.inputs[0]
        if isinstance(case, Check):
            return case.names
        return (case.name.partition(".")[0],) if isinstance(case, Call) else ()

    @property
    def longest(self) -> int:
        """Bytes of the longest expected value, as text: a program must be able to write it."""
        return max(len(str(value).encode("utf-8", "surrogatepass")) for value in self.expected)

    def with_prelude(self, program: str) -> str:
        """Return `program` after its prelude; a ``__future__`` import must come first, so then without the prelude."""
        return program if "from __future__" in program or not self.prelude else f"{self.prelude}\n{program}"


def parse_tests(value: object) -> Tests:
    """Parse the tests of an example."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise BadTests(f"not JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise BadTests(f"expected a mapping, got a {type(value).__name__}")
    kinds = [kind for kind in KINDS if value.get(kind) is not None]
    if len(kinds) != 1:
        raise BadTests(f"expected one of {', '.join(KINDS)}, got {', '.join(kinds) or 'none'}")
    try:
        inputs, expected, checker = _PARSERS[kinds[0]](value[kinds[0]])
    except (TypeError, ValueError, KeyError) as error:
        raise BadTests(f"`{kinds[0]}` is malformed: {type(error).__name__} {error}") from None
    if not inputs:
        raise BadTests("there are no cases")
    prelude = value.get("prelude") or ""
    parse_source(prelude, "the prelude")
    return Tests(tuple(inputs), tuple(expected), prelude, checker)


ParsedCases = tuple[Sequence[Input], Sequence[Any], str]


def _stdin(cases: Any) -> ParsedCases:
    pairs = [(text, output) for text, output in cases]
    inputs = [Stdin(_require_text(text)) for text, _ in pairs]
    return inputs, [_require_text(output) for _, output in pairs], ""


def _calls(value: Any) -> ParsedCases:
    cases = [(list(args), out) for args, out in value["cases"]]
    inputs = [Call(_require_text(value["name"]), args) for args, _ in cases]
    return inputs, [out for _, out in cases], ""


def _asserts(value: Any) -> ParsedCases:
    setup, names = value.get("setup") or "", tuple(_require_text(name) for name in value["names"])
    parse_source(setup, "the setup")
    for check in value["checks"]:
        parse_source(check, f"the check {check[:60]!r}")
    classes = value.get("classes")
    if classes is None:
        classes = class_names(names, [setup, *value["checks"]])
    tests = [Check(_require_text(check), setup, names, tuple(classes)) for check in value["checks"]]
    return tests, [True] * len(tests), ""


def _checker(value: Any) -> ParsedCases:
    tree = parse_source(value["source"], "the checker")
    if not any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body):
        raise ValueError("the source defines no check(given, output)")
    inputs = [Stdin(_require_text(given)) for given in value["inputs"]]
    return inputs, [True] * len(inputs), value["source"]


_PARSERS = {"stdin": _stdin, "calls": _calls, "asserts": _asserts, "checker": _checker}


def _require_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {value!r}")
    return value
