"""What a program is tested with: four kinds, as a column `tests` holds them (JSON, or the same as a mapping).

- ``{"stdin": [["1 2\\n", "3\\n"], …]}``: standard input, standard output
- ``{"calls": {"name": "add", "cases": [[[1, 2], 3], …]}}``: arguments, value
- ``{"asserts": {"setup": "import math", "names": ["add"], "checks": ["assert add(1, 2) == 3", …]}}``
- ``{"checker": {"source": "def check(given, output): …", "inputs": ["5\\n", …]}}``: a function judges what was written

Each may have a ``prelude``: source that is put before the program.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlm_sandbox import Call, Check, Input, Stdin

KINDS = ("stdin", "calls", "asserts", "checker")


class BadTests(Exception):
    """Tests that test nothing, or cannot be read. The message says why."""


@dataclass(frozen=True, eq=False)
class Tests:
    """The tests of one problem.

    Args:
        inputs: What the sandbox is asked, one per case.
        expected: Of each the value; of asserts, and where a checker judges, True.
        prelude: Put before the program.
        checker: Source of ``check(given, output)``, where there is one.
    """

    inputs: tuple[Input, ...]
    expected: tuple[Any, ...]
    prelude: str = ""
    checker: str = ""

    def before(self, program: str) -> str:
        """`program` with its prelude; one that imports from the future must be the first itself."""
        return program if "from __future__" in program or not self.prelude else f"{self.prelude}\n{program}"


def read(value: object) -> Tests:
    """The tests of a row.

    Raises:
        BadTests: They are none.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise BadTests(f"no JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise BadTests(f"a {type(value).__name__}, not a mapping")
    kinds = [kind for kind in KINDS if value.get(kind) is not None]
    if len(kinds) != 1:
        raise BadTests(f"it needs one of {', '.join(KINDS)}, and has {', '.join(kinds) or 'none'}")
    try:
        inputs, expected, checker = _READERS[kinds[0]](value[kinds[0]])
    except (TypeError, ValueError, KeyError) as error:
        raise BadTests(f"`{kinds[0]}` is not as it should be: {type(error).__name__} {error}") from None
    if not inputs:
        raise BadTests("there is no case")
    prelude = value.get("prelude") or ""
    parsed(prelude, "the prelude")
    return Tests(tuple(inputs), tuple(expected), prelude, checker)


def parsed(source: str, what: str) -> ast.Module:
    """The syntax tree of test code.

    Raises:
        BadTests: It has none.
    """
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:
        raise BadTests(f"{what} is no Python: {error}") from None


Read = tuple[Sequence[Input], Sequence[Any], str]


def _stdin(cases: Any) -> Read:
    pairs = [(given, out) for given, out in cases]
    return [Stdin(_text(given)) for given, _ in pairs], [_text(out) for _, out in pairs], ""


def _calls(value: Any) -> Read:
    cases = [(list(args), out) for args, out in value["cases"]]
    return [Call(_text(value["name"]), args) for args, _ in cases], [out for _, out in cases], ""


def _asserts(value: Any) -> Read:
    setup, names = value.get("setup") or "", tuple(_text(name) for name in value["names"])
    parsed(setup, "the setup")
    for check in value["checks"]:
        parsed(check, f"the check {check[:60]!r}")
    checks = [Check(_text(check), setup=setup, names=names) for check in value["checks"]]
    return checks, [True] * len(checks), ""


def _checker(value: Any) -> Read:
    tree = parsed(value["source"], "the checker")
    if not any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in tree.body):
        raise ValueError("the source defines no check(given, output)")
    inputs = [Stdin(_text(given)) for given in value["inputs"]]
    return inputs, [True] * len(inputs), value["source"]


_READERS = {"stdin": _stdin, "calls": _calls, "asserts": _asserts, "checker": _checker}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
