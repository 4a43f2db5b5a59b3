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
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlm_sandbox import Call, Check, Input, Stdin

from rlm_code.program_names import class_names
from rlm_code.source import BadTests, parse_source

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
