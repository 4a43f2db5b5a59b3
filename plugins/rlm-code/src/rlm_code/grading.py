"""Grades one program: asks the sandbox, compares here, and stops when the score is settled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rlm_sandbox import Check, Input, Limits, Output, Program, Sandbox, Stdin, same, same_text

from rlm_code.cases import Tests


class Grade(NamedTuple):
    """How a program did.

    Args:
        share: Of the cases that passed.
        end: ``passed``, or what happened at the first case that did not: wrong, error, late, died, garbled.
    """

    share: float
    end: str


def grade(sandbox: Sandbox, program: str, tests: Tests, limits: Limits, *, every_case: bool) -> Grade:
    """Runs the cases in order; without `every_case` only up to the first that fails.

    After a case that is late or dies no other is run: they count as failed.
    """
    outputs = sandbox.run(Program(tests.before(program)), tests.inputs, limits)
    if tests.checker:
        outputs = _judged(sandbox, list(outputs), tests, limits)
    passed, end = 0, "passed"
    for given, expected, output in zip(tests.inputs, tests.expected, outputs, strict=True):
        verdict = output.status if output.status != "ok" else "passed" if _right(given, expected, output) else "wrong"
        passed += verdict == "passed"
        if verdict != "passed":
            end = verdict if end == "passed" else end
            if not every_case:
                break
    return Grade(passed / len(tests.inputs), end)


def _right(given: Input, expected: object, output: Output) -> bool:
    if isinstance(given, Stdin) and isinstance(expected, str):
        return same_text(output.value, expected)
    return same(output.value, expected)


def _judged(sandbox: Sandbox, outputs: list[Output], tests: Tests, limits: Limits) -> Iterator[Output]:
    """What a data set's own function says of each output; it runs where programs run, and without one."""
    for given, output in zip(tests.inputs, outputs, strict=True):
        if output.status != "ok" or not isinstance(given, Stdin):
            yield output
            continue
        question = Check(f"assert check({given.text!r}, {output.value!r})", setup=tests.checker)
        (answer,) = sandbox.run(Program(""), [question], limits)
        yield Output("ok", answer.status == "ok")
