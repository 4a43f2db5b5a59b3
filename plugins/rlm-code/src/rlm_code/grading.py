"""Grading of one program: runs in the sandbox, compares in this process, stops once the score is settled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from rlm_sandbox import Check, Input, Limits, Output, Program, Sandbox, Stdin, same, same_text

from rlm_code.cases import Tests


class Grade(NamedTuple):
    """The outcome of a program.

    Args:
        share: Share of the cases that passed.
        end: ``passed``, or the outcome of the first case that failed: wrong, error, late, died, garbled.
    """

    share: float
    end: str


def grade(sandbox: Sandbox, program: str, tests: Tests, limits: Limits, *, every_case: bool) -> Grade:
    """Run the cases in order; without `every_case` only up to the first failure.

    After a case that is late or crashes, the remaining cases are not run and count as failed.
    """
    limits = replace(limits, output=max(limits.output, 2 * tests.longest))
    outputs = sandbox.run(Program(tests.with_prelude(program)), tests.inputs, limits)
    if tests.checker:
        outputs = _check_outputs(sandbox, list(outputs), tests, limits)
    passed, end = 0, "passed"
    for case, expected, output in zip(tests.inputs, tests.expected, outputs, strict=True):
        outcome: str = output.status
        if outcome == "ok":
            outcome = "passed" if _is_correct(case, expected, output) else "wrong"
        passed += outcome == "passed"
        if outcome != "passed":
            end = outcome if end == "passed" else end
            if not every_case:
                break
    return Grade(passed / len(tests.inputs), end)


def _is_correct(given: Input, expected: object, output: Output) -> bool:
    if isinstance(given, Stdin) and isinstance(expected, str):
        return same_text(output.value, expected)
    return same(output.value, expected)


def _check_outputs(sandbox: Sandbox, outputs: list[Output], tests: Tests, limits: Limits) -> Iterator[Output]:
    """Yield the verdict of the data set's checker on each output, in a sandbox process without the program.

    The checks are inputs of one sample: the output of a program can keep its checker busy, and the total limits that.
    """
    checks = [
        Check(f"assert check({case.text!r}, {output.value!r})", setup=tests.checker)
        for case, output in zip(tests.inputs, outputs, strict=True)
        if output.status == "ok" and isinstance(case, Stdin)
    ]
    verdicts = sandbox.run(Program(""), checks, limits)
    for output in outputs:
        if output.status == "ok":
            verdict = next(verdicts)
            output = verdict if verdict.status in ("late", "skipped") else Output("ok", verdict.status == "ok")
        yield output
