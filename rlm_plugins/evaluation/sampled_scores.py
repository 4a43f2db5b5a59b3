"""Scores of n sampled completions per prompt: mean, pass@k and majority@k with intervals, and base against trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rlm_plugins.evaluation.early_stop import differences
from rlm_plugins.evaluation.estimators import majority_at, paired_interval, pass_at, share_interval
from rlm_plugins.evaluation.held_out_report import interval

KINDS = ("pass", "majority")


@dataclass(frozen=True)
class SampledScores:
    """Scores and answers of n completions per prompt.

    Args:
        scores: Per prompt, the score of each completion that was scored.
        answers: Per prompt, the number of each completion's answer: equal answers have equal numbers.
    """

    scores: Sequence[Sequence[float]]
    answers: Sequence[Sequence[int]]

    @property
    def samples(self) -> int:
        """Completions of a prompt, n."""
        return max(map(len, self.scores), default=0)

    def of_prompts(self, kind: str, k: int) -> list[float | None]:
        """Return ``pass`` or ``majority`` at k, or the ``mean``, of each prompt; None with fewer than k scores."""
        values: list[float | None] = []
        for scores, answers in zip(self.scores, self.answers, strict=True):
            if len(scores) < max(k, 1):
                values.append(None)
            elif kind == "mean":
                values.append(sum(scores) / len(scores))
            else:
                values.append(pass_at(scores, k) if kind == "pass" else majority_at(answers, scores, k))
        return values

    def estimate(self, kind: str, k: int = 1) -> list[float]:
        """Return the mean over prompts of `of_prompts`, and its 95 % interval: [mean, low, high]."""
        values = [value for value in self.of_prompts(kind, k) if value is not None]
        mean = sum(values) / len(values) if values else float("nan")
        is_share = all(0.0 <= value <= 1.0 for value in values)
        return [mean, *(share_interval(values) if is_share else interval(values))]

    def table(self, ks: Sequence[int]) -> dict[str, Any]:
        """Return ``mean``, ``pass`` and ``majority``: an estimate, or one per k as text."""
        estimates: dict[str, Any] = {"mean": self.estimate("mean")}
        for kind in KINDS:
            estimates[kind] = {str(k): self.estimate(kind, k) for k in ks}
        return estimates


def change(before: SampledScores, after: SampledScores, kind: str, k: int) -> list[float]:
    """Return the mean paired difference over prompts with its 95 % interval: [mean, low, high]."""
    changes, largest = differences(before.of_prompts(kind, k), after.of_prompts(kind, k))
    mean = sum(changes) / len(changes) if changes else float("nan")
    return [mean, *paired_interval(changes, largest)]


def verdict(before: SampledScores, after: SampledScores) -> str:
    """Return how training changed the model, by the paired intervals of pass@1 and pass@n.

    - ``discovery``: pass@n rose; prompts are solved that the base did not solve in n samples
    - ``sharpening``: pass@1 rose and pass@n did not; what the base solved at times is solved more often
    - ``narrowing``: pass@n fell; some prompts are not solved any more
    - ``no certain change``: neither interval excludes 0
    """
    n = min(before.samples, after.samples)
    if not n:
        return "no certain change"
    first, last = change(before, after, "pass", 1), change(before, after, "pass", n)
    if last[1] > 0:
        return "discovery"
    if last[2] < 0:
        return "narrowing"
    return "sharpening" if first[1] > 0 else "no certain change"


def compared(before: SampledScores, after: SampledScores, ks: Sequence[int]) -> dict[str, Any]:
    """Return base against trained as plain data: ``before`` and ``after`` (see `table`), ``change``, ``verdict``."""
    changes = {}
    for kind in KINDS:
        changes[kind] = {str(k): change(before, after, kind, k) for k in ks}
    tables = {"before": before.table(ks), "after": after.table(ks)}
    return {**tables, "change": changes, "verdict": verdict(before, after)}
