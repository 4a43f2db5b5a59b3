"""r: share of unit tests passed by the generated program (hook ``rlm_rewards``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

from pydantic import Field
from rlm_sandbox import Check, Input, Limits, Output, Program, Sandbox, SandboxError, Stdin, same, same_text, shared

from rlm_coding.cases import BadTests, Tests, parse_tests
from rlm_coding.program import Block, Unfenced, program
from rlm_plugins.errors import PartError


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


Credit = Literal["all", "share"]
Count = Annotated[int, Field(ge=1, le=256)]
Megabytes = Annotated[int, Field(ge=16, le=65536)]
Seconds = Annotated[float, Field(gt=0, le=600)]
TotalSeconds = Annotated[float, Field(gt=0, le=3600)]
Log = Callable[[str, float], None]


def code_tests(
    completions: Sequence[str],
    tests: Sequence[object],
    log_metric: Log | None = None,
    *,
    credit: Credit = "all",
    block: Block = "last",
    unfenced: Unfenced = "wrong",
    seconds: Seconds = 4.0,
    total_seconds: TotalSeconds = 12.0,
    megabytes: Megabytes = 1024,
    modules: Sequence[str] = (),
    workers: Count | None = None,
) -> list[float | None]:
    """Return 1 if the completion's program passes all tests of its example, else 0; or the share that it passes.

    r = passed / cases for `credit` "share", and 1 only where that is 1 for "all", which stops at the first failure.

    The program is the last (`block`: first, only) fenced Python block after the thinking that defines a tested name,
    if one does. An unclosed block was truncated and scores 0. `unfenced` "whole" treats a completion without fences as
    the program. The column `tests` holds standard input and output, calls and values, asserts, or a checker: see
    `rlm_coding.cases`. Each case has a limit of `seconds` of wall time and of `megabytes`, and all cases together of
    `total_seconds`. After a case that is late or crashes, the remaining cases count as failed.

    Programs run in rlm-sandbox, `workers` at once (by default one per core of this process), with the standard
    library and the installed `modules`. Tests run in another process, and answers are compared in this one. A program
    receives no expected value and takes part in no comparison: its results arrive as values of declared types. An
    example without tests is not scored: None. Logged: ``code_late``, ``code_died``, ``code_error``, ``code_wrong``,
    ``code_missing``, as shares of the batch.
    Source: unit-test rewards as in CodeRL, arXiv 2207.01780; the partial credit is APPS's test case average.

    Args:
        completions: Text of each completion (B).
        tests: Tests of each completion's example.
        log_metric: Called with name and value of each metric.
        credit: All tests, or the share that passes.
        block: The fenced block that counts.
        unfenced: Handling of completions without fences.
        seconds: Time limit per case.
        total_seconds: Time limit of all cases of a program together.
        megabytes: Memory limit per case.
        modules: Installed modules that programs may import.
        workers: Number of sandbox processes.

    Returns:
        One score in [0, 1], or None, per completion.

    >>> code_tests(["```python\\ndef f(x): return x + 1\\n```"], ['{"calls": {"name": "f", "cases": [[[1], 2]]}}'])
    [1.0]
    """
    limits = Limits(seconds=min(seconds, total_seconds), memory=megabytes << 20, total=total_seconds)
    jobs = [
        _program_and_tests(text, column, row, block, unfenced)
        for row, (text, column) in enumerate(zip(completions, tests, strict=True))
    ]
    unique_jobs = [job for job in dict.fromkeys(jobs) if job is not None and job[0] is not None]
    sandbox = shared(workers, modules)

    def grade_job(job: ProgramTests) -> Grade:
        source, cases = job
        return grade(sandbox, source or "", cases, limits, every_case=credit == "share")

    try:
        if unique_jobs:
            sandbox.start()
        with ThreadPoolExecutor(sandbox.size) as threads:
            grades = dict(zip(unique_jobs, threads.map(grade_job, unique_jobs), strict=True))
    except SandboxError as error:
        raise PartError(str(error)) from None
    results = [None if job is None else grades.get(job, Grade(0.0, "missing")) for job in jobs]
    if log_metric is not None and results:
        _log(log_metric, results, bool(unique_jobs) and not sandbox.sandboxed)
    return [None if result is None else _credited(result.share, credit) for result in results]


code_tests.gold_column = "solution"  # type: ignore[attr-defined]


def _credited(share: float, credit: Credit) -> float:
    return share if credit == "share" else float(share == 1)


ProgramTests = tuple[str | None, Tests]


def _program_and_tests(text: str, column: object, row: int, block: Block, unfenced: Unfenced) -> ProgramTests | None:
    if column is None or column == "":
        return None
    try:
        cases = _parse_cached(column) if isinstance(column, str) else parse_tests(column)
        return program(text, block, unfenced, cases.names), cases
    except BadTests as error:
        raise PartError(f"sample {row}: unusable tests: {error}", hint="see rlm_coding.cases") from None


_parse_cached = lru_cache(maxsize=4096)(parse_tests)


def _log(log: Log, results: Sequence[Grade | None], unsandboxed: bool) -> None:
    counts = Counter(result.end for result in results if result is not None)
    for name in ("late", "died", "error", "wrong", "missing"):
        log(f"code_{name}", counts[name] / len(results))
    if unsandboxed:
        log("code_unsandboxed", 1.0)
