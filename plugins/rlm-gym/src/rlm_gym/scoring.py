"""Asks for scores beyond the wall: many answers to a process, a few processes at once, and nobody is waited for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

from rlm_sandbox import Call, Limits, Program, shared
from rlm_sandbox.local import Local

SCORER = Program("from rlm_gym.beyond import score")
TOGETHER = 16
"""Answers that are scored by one process, one after the other."""


class Question(NamedTuple):
    """An entry of a row, and an answer to it."""

    entry: str
    answer: str


class Score(NamedTuple):
    """A score, and how it came about: "error": the scorer raised."""

    value: float
    how: Literal["ok", "error", "late", "died", "garbled", "skipped"]


def scores(questions: Sequence[Question], seconds: float) -> list[Score]:
    """The score of every question, each in at most `seconds`; 0 where there is none.

    Raises:
        SandboxError: This machine cannot keep in what a scorer executes.
    """
    sandbox = shared(modules=("rlm_gym.beyond",))
    sandbox.start()
    parts = [questions[start : start + TOGETHER] for start in range(0, len(questions), TOGETHER)]
    with ThreadPoolExecutor(sandbox.size) as pool:
        found = pool.map(lambda part: list(_of(sandbox, part, Limits(seconds=seconds))), parts)
        return [score for part in found for score in part]


def _of(sandbox: Local, questions: Sequence[Question], limits: Limits) -> Iterable[Score]:
    """Those after one that was late or died are asked again, in another process."""
    place = 0
    while place < len(questions):
        calls = [Call("score", question) for question in questions[place:]]
        for output in sandbox.run(SCORER, calls, limits):
            if output.status == "skipped":
                break
            value = output.value if output.status == "ok" and type(output.value) is float else 0.0
            place += 1
            yield Score(value if 0.0 <= value <= 1.0 else 0.0, output.status)
