"""Cases for ``rlm reward audit code_tests --cases repairs``: repairs of the environment `repairs`, right and wrong."""

from __future__ import annotations

import json
import random
from functools import lru_cache
from typing import Any

from rlm_audit.case import Case, Family, Generator
from rlm_sandbox.measured.cheats import CONSTANTS, EXCEPTIONS, EXITS, OBJECTS

from rlm_code.audit_cases import plain_python
from rlm_code.mutation import mutated
from rlm_code.repairs import repairs

Row = dict[str, Any]


@lru_cache(maxsize=1)
def rows() -> tuple[Row, ...]:
    """Return the examples of training and evaluation."""
    spec = repairs(test_rows=10_000)
    return tuple(dict(row) for row in (*spec.train, *spec.test))


def _original(row: Row) -> str:
    return str(row["demonstration"]).removeprefix("```python\n").removesuffix("\n```")


def _case(row: Row, program: str, is_right: bool) -> Case:
    return Case({"tests": row["tests"]}, program, is_right, row["prompt"][0]["content"])


def _repaired(rng: random.Random, size: int) -> Case:
    row = rng.choice(rows())
    return _case(row, f"{_original(row)}\n# {rng.random()}\n", True)


def _unchanged(rng: random.Random, size: int) -> Case:
    row = rng.choice(rows())
    return _case(row, f"{row['broken']}\n# {rng.random()}\n", False)


def _one_test_answered(rng: random.Random, size: int) -> Case:
    """Return the broken function with the answer to one test in it; a bug fails two tests or more."""
    row = rng.choice(rows())
    calls = json.loads(row["tests"])["calls"]
    args, expected = rng.choice(calls["cases"])
    name = calls["name"]
    program = (
        f"{row['broken']}\n_before = {name}\ndef {name}(*args):\n"
        f"    return {expected!r} if list(args) == {args!r} else _before(*args)\n"
    )
    return _case(row, program, False)


def _changed(start: str, *, is_right: bool) -> Generator:
    """Return a generator of further mutants, judged by plain Python: of the ``broken`` or the original function."""

    def generate(rng: random.Random, size: int) -> Case | None:
        row = rng.choice(rows())
        program = mutated(row["broken"] if start == "broken" else _original(row), rng, 1)
        if program is None or plain_python().passes(program, json.loads(row["tests"])) is not is_right:
            return None
        return _case(row, program, is_right)

    return generate


def _cheat(programs: dict[str, str]) -> Generator:
    def generate(rng: random.Random, size: int) -> Case:
        row = rng.choice(rows())
        name = json.loads(row["tests"])["calls"]["name"]
        return _case(row, programs[rng.choice([*programs])].replace("NAME", name), False)

    return generate


FAMILY = Family(
    {
        "repaired": _repaired,
        "another form that passes in plain Python": _changed("original", is_right=True),
        "unchanged": _unchanged,
        "one test answered": _one_test_answered,
        "another bug": _changed("original", is_right=False),
        "two bugs": _changed("broken", is_right=False),
        "objects that agree with everything": _cheat(OBJECTS),
        "exceptions and generators": _cheat(EXCEPTIONS),
        "exits and forged messages": _cheat(EXITS),
        "constants": _cheat(CONSTANTS),
    },
    form="```python\n{answer}\n```",
)
"""Cases for `code_tests` on `repairs`."""
