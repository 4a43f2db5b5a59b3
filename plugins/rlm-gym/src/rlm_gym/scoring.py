"""Scoring of answers in sandbox processes: a batch per process, several processes in parallel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple

from rlm_sandbox import Call, Limits, Program, shared
from rlm_sandbox.local import Local

SCORER = Program("from rlm_gym.sandboxed_scorer import score")
BATCH_SIZE = 16
"""Answers scored by one process, one after the other."""


class ScoringRequest(NamedTuple):
    """The entry of an example and an answer to it."""

    entry: str
    answer: str


class Score(NamedTuple):
    """A score and the outcome of its computation; "error": the scorer raised."""

    value: float
    how: Literal["ok", "error", "late", "died", "garbled", "skipped"]


def scores(requests: Sequence[ScoringRequest], seconds: float) -> list[Score]:
    """Score each request in at most `seconds`; 0 where the scorer returned no score.

    Raises:
        SandboxError: This machine cannot isolate the scorers.
    """
    sandbox = shared(modules=("rlm_gym.sandboxed_scorer",))
    sandbox.start()
    batches = [requests[start : start + BATCH_SIZE] for start in range(0, len(requests), BATCH_SIZE)]
    with ThreadPoolExecutor(sandbox.size) as pool:
        results = pool.map(lambda batch: list(_score_batch(sandbox, batch, Limits(seconds=seconds))), batches)
        return [score for batch in results for score in batch]


def _score_batch(sandbox: Local, requests: Sequence[ScoringRequest], limits: Limits) -> Iterable[Score]:
    """Yield the scores of a batch; requests after a late or crashed one are resubmitted to another process."""
    position = 0
    while position < len(requests):
        calls = [Call("score", request) for request in requests[position:]]
        for output in sandbox.run(SCORER, calls, limits):
            if output.status == "skipped":
                break
            value = output.value if output.status == "ok" and type(output.value) is float else 0.0
            position += 1
            yield Score(value if 0.0 <= value <= 1.0 else 0.0, output.status)
