"""x: functions with a planted bug, to be repaired (hook ``rlm_environments``)."""

from __future__ import annotations

import ast
import copy
import hashlib
import inspect
import json
import random
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import Field
from rlm_sandbox import Call, Limits, Program, shared

from rlm_code.mutation import mutated
from rlm_code.repair_programs import FUNCTIONS
from rlm_plugins.specs import EnvironmentSpec

Count = Annotated[int, Field(ge=1)]
LIMITS = Limits(seconds=1.0, memory=256 << 20, total=4.0)
TRIES = 40
"""Random mutants of each function."""


def repairs(*, bugs: Annotated[int, Field(ge=1, le=3)] = 1, test_rows: Count = 40, seed: int = 0) -> EnvironmentSpec:
    """Build repairs of small functions: a bug is planted, one failing test is shown, all tests decide.

    The bug is a random change of the syntax tree (another operator, a number off by one, a negated condition), `bugs`
    of them. Only mutants that fail two tests or more are used, as found by running them in rlm-sandbox; so the shown
    one cannot be passed by itself. The prompt has the docstring, the source and the failing call with both values.
    Score it with ``code_tests``, whose program is the whole function. Columns: ``prompt``, ``tests``,
    ``demonstration`` (the original function) and ``broken``.

    One mutant in eight, by the hash of its source, is held out. Functions occur on both sides; their bugs do not.
    """
    rng, rows = random.Random(f"bugs {seed}"), dict[str, dict[str, Any]]()
    for function, inputs in FUNCTIONS.items():
        source = _source(function)
        for _ in range(TRIES):
            broken = mutated(source, rng, bugs)
            if broken is not None and broken not in rows and (row := _row(function, inputs, source, broken, rng)):
                rows[broken] = row
    held_out = [row for row in rows.values() if _is_held_out(row["broken"])]
    train = [row for row in rows.values() if not _is_held_out(row["broken"])]
    random.Random(f"order {seed}").shuffle(train)
    random.Random("order of the test set").shuffle(held_out)
    return EnvironmentSpec(train=train, test=held_out[:test_rows])


def _row(
    function: Callable[..., Any], inputs: list[tuple[Any, ...]], source: str, broken: str, rng: random.Random
) -> dict[str, Any] | None:
    """Return the example of a mutant; None if it fails fewer than two tests."""
    name, calls = function.__name__, [Call(function.__name__, args) for args in inputs]
    cases = [[list(args), function(*copy.deepcopy(args))] for args in inputs]
    outputs = list(shared().run(Program(broken), calls, LIMITS))
    failed = [i for i, output in enumerate(outputs) if output.status != "ok" or output.value != cases[i][1]]
    if len(failed) < 2:
        return None
    shown = rng.choice(failed)
    result = repr(outputs[shown].value) if outputs[shown].status == "ok" else outputs[shown].error or "no value"
    call = f"{name}({', '.join(map(repr, inputs[shown]))})"
    text = (
        f"This function is wrong. {function.__doc__}\n```python\n{broken}\n```\n"
        f"{call} should be {cases[shown][1]!r}, and is: {result}\nWrite the whole repaired function in a Python block."
    )
    return {
        "prompt": [{"role": "user", "content": text}],
        "tests": json.dumps({"calls": {"name": name, "cases": cases}}),
        "demonstration": f"```python\n{source}\n```",
        "broken": broken,
    }


def _source(function: Callable[..., Any]) -> str:
    """Return the source of a function without its docstring and comment."""
    (tree,) = ast.parse(inspect.getsource(function)).body
    assert isinstance(tree, ast.FunctionDef)
    tree.body = tree.body[1:]
    return ast.unparse(tree)


def _is_held_out(source: str) -> bool:
    return hashlib.blake2b(source.encode(), digest_size=1).digest()[0] < 32
