"""r: does the program pass its tests? (hook ``rlm_rewards``)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import Field
from rlm_sandbox import Limits, SandboxError, shared

from rlm_code.cases import BadTests, Tests, read
from rlm_code.extracting import Block, Unfenced, program
from rlm_code.grading import Grade, grade
from rlm_plugins.errors import PartError

Credit = Literal["all", "share"]
Count = Annotated[int, Field(ge=1, le=256)]
Megabytes = Annotated[int, Field(ge=16, le=65536)]
Seconds = Annotated[float, Field(gt=0, le=600)]
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
    megabytes: Megabytes = 1024,
    modules: Sequence[str] = (),
    workers: Count | None = None,
) -> list[float | None]:
    """1 if the program in the completion passes all tests of its row, else 0; or the share it passes.

    r = passed / cases for `credit` "share", and 1 only where that is 1 for "all", which stops at the first failure.

    The program is the last (`block`: first, only) fenced Python block after the thinking; one that is not closed was
    cut off and scores 0. `unfenced` "whole" takes a completion without fences as the program. The column `tests`
    holds standard input and output, calls and values, asserts, or a checker: see `rlm_code.cases`. Each case has
    `seconds` of the clock and `megabytes`; after one that is late or crashes the others count as failed.

    Programs run in rlm-sandbox, `workers` at once (by default one per core of this process), with the standard
    library and the installed `modules`. Tests run in another process, and answers are compared in this one: a
    program can neither read its tests nor say that it passed. A row without tests is not scored: None. Logged:
    ``code_late``, ``code_died``, ``code_error``, ``code_wrong``, ``code_missing``, as shares of the batch.
    Source: unit-test rewards as in CodeRL, arXiv 2207.01780; the partial credit is APPS's test case average.

    >>> code_tests(["```python\\ndef f(x): return x + 1\\n```"], ['{"calls": {"name": "f", "cases": [[[1], 2]]}}'])
    [1.0]
    """
    limits = Limits(seconds=seconds, memory=megabytes << 20)
    jobs = [
        _job(text, column, row, block, unfenced)
        for row, (text, column) in enumerate(zip(completions, tests, strict=True))
    ]
    todo = [job for job in dict.fromkeys(jobs) if job is not None and job[0] is not None]
    sandbox = shared(workers, modules)

    def graded(job: Job) -> Grade:
        source, cases = job
        return grade(sandbox, source or "", cases, limits, every_case=credit == "share")

    try:
        if todo:
            sandbox.start()
        with ThreadPoolExecutor(sandbox.size) as threads:
            grades = dict(zip(todo, threads.map(graded, todo), strict=True))
    except SandboxError as error:
        raise PartError(str(error)) from None
    found = [None if job is None else grades.get(job, Grade(0.0, "missing")) for job in jobs]
    if log_metric is not None and found:
        _log(log_metric, found, bool(todo) and not sandbox.sandboxed)
    return [None if each is None else each.share if credit == "share" else float(each.share == 1) for each in found]


Job = tuple[str | None, Tests]


def _job(text: str, column: object, row: int, block: Block, unfenced: Unfenced) -> Job | None:
    if column is None or column == "":
        return None
    try:
        return program(text, block, unfenced), (_read(column) if isinstance(column, str) else read(column))
    except BadTests as error:
        raise PartError(f"sample {row}: its tests cannot be used: {error}", hint="see rlm_code.cases") from None


_read = lru_cache(maxsize=4096)(read)


def _log(log: Log, found: Sequence[Grade | None], unsandboxed: bool) -> None:
    ends = Counter(each.end for each in found if each is not None)
    for name in ("late", "died", "error", "wrong", "missing"):
        log(f"code_{name}", ends[name] / len(found))
    if unsandboxed:
        log("code_unsandboxed", 1.0)
