"""Scores of held-out examples: pass@k and majority@k with intervals, their comparison, and the early stop."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

Z95 = 1.959964


def default_ks(samples: int) -> tuple[int, ...]:
    """Return the powers of 4 up to the number of samples, and that number.

    >>> default_ks(8), default_ks(16)
    ((1, 4, 8), (1, 4, 16))
    """
    powers = [4**i for i in range(8) if 4**i <= samples]
    return tuple(dict.fromkeys([*powers, samples]))


def pass_at(scores: Sequence[float], k: int) -> float:
    """Return the expected largest score of k of the n samples, drawn without replacement.

    Σᵢ C(i−1, k−1) / C(n, k) · s₍ᵢ₎ with ascending scores. For scores of 0 and 1, c of them 1, it is
    1 − C(n−c, k) / C(n, k) (Chen et al., arXiv 2107.03374).

    >>> pass_at([1.0, 0.0, 0.0, 0.0], 2)
    0.5
    """
    draws = math.comb(len(scores), k)
    return sum(math.comb(i, k - 1) * score for i, score in enumerate(sorted(scores))) / draws


def majority_at(answers: Sequence[Hashable], scores: Sequence[float], k: int) -> float:
    """Return the expected score of the most frequent answer among k of the n samples, drawn without replacement.

    Of several most frequent answers, each is chosen with the same probability. The score of an answer is the mean of
    its samples.

    >>> round(majority_at(["4", "4", "5"], [1.0, 1.0, 0.0], 3), 3), round(majority_at("445", [1.0, 1.0, 0.0], 2), 3)
    (1.0, 0.667)
    """
    counts = Counter(answers)
    totals = dict.fromkeys(counts, 0.0)
    for answer, score in zip(answers, scores, strict=True):
        totals[answer] += score
    chances = _chances(tuple(sorted(counts.values())), k)
    return sum(chances[count] * totals[answer] / count for answer, count in counts.items())


@lru_cache(maxsize=4096)
def _chances(counts: tuple[int, ...], k: int) -> dict[int, float]:
    """Return count → probability that an answer with this count is chosen by the vote of k samples."""
    draws = math.comb(sum(counts), k)
    return {count: _winning_draws(counts, count, k) / draws for count in set(counts)}


def _winning_draws(counts: tuple[int, ...], count: int, k: int) -> float:
    """Return the number of draws that an answer wins; a draw with m ties counts 1/(m+1)."""
    other_counts = list(counts)
    other_counts.remove(count)
    won = 0.0
    for votes in range(1, min(count, k) + 1):
        draws = {(0, 0): 1}  # (samples of other answers, answers with as many votes) → number of draws
        for other_count in other_counts:
            extended: dict[tuple[int, int], int] = {}
            for (size, ties), number in draws.items():
                for more in range(min(other_count, votes, k - votes - size) + 1):
                    key = size + more, ties + (more == votes)
                    extended[key] = extended.get(key, 0) + number * math.comb(other_count, more)
            draws = extended
        exact = (number / (ties + 1) for (size, ties), number in draws.items() if size == k - votes)
        won += math.comb(count, votes) * sum(exact)
    return won


def share_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the mean of independent numbers between 0 and 1, such as pass@k of each prompt.

    Wilson's interval (JASA 1927) with the effective sample size n · p(1−p) / s² in place of n; p is the mean and s²
    the variance of the numbers. For numbers that are all 0 or 1 it is Wilson's own, and it never has width 0.

    >>> [round(x, 3) for x in share_interval([1.0] * 8 + [0.0] * 2)]
    [0.49, 0.943]
    """
    n = len(values)
    if n == 0:
        return math.nan, math.nan
    mean = sum(values) / n
    variance = sum((x - mean) ** 2 for x in values) / max(n - 1, 1)
    size = n * max(mean * (1 - mean) / variance, 1.0) if variance > 1e-12 else float(n)
    center = mean + Z95**2 / (2 * size)
    spread = Z95 * math.sqrt(max(mean * (1 - mean), 0.0) / size + Z95**2 / (4 * size * size))
    return (center - spread) / (1 + Z95**2 / size), (center + spread) / (1 + Z95**2 / size)


def paired_interval(differences: Sequence[float], largest: float = 1.0) -> tuple[float, float]:
    """Return the 95 % interval of the mean difference between two models on the same prompts.

    Mean and standard error with two more differences, +largest and −largest. For scores of 0 and 1 it is the interval
    of Bonett and Price (J. Educ. Behav. Stat. 2012) for paired proportions; few prompts that differ are no evidence.

    Args:
        differences: One per prompt.
        largest: The largest possible difference.

    >>> [round(x, 3) for x in paired_interval([1.0] * 4 + [0.0] * 96)]
    [-0.007, 0.086]
    """
    if not differences:
        return math.nan, math.nan
    total, size = sum(differences), len(differences) + 2
    squares = sum(d * d for d in differences) + 2 * largest**2
    error = math.sqrt(max(squares - total**2 / size, 0.0)) / size
    return total / size - Z95 * error, total / size + Z95 * error


@dataclass(frozen=True)
class Report:
    """The score of a model on held-out examples.

    Args:
        score: Mean of the metric; the accuracy if all rewards are 0 or 1.
        low: Lower end of the 95 % interval.
        high: Upper end.
        rows: Number of scored examples.
        rewards: Mean of every reward.
        samples: Index of the example, prompt, completion and rewards of each, in the order of the examples.
        share: True if every score is 0 or 1, so that their mean is a share.
    """

    score: float
    low: float
    high: float
    rows: int
    rewards: Mapping[str, float]
    samples: Sequence[Mapping[str, Any]]
    share: bool = True

    def text_of(self, value: float) -> str:
        """Return a score as text: as a percentage if it is a share."""
        return score_text(value, share=self.share)


def score_text(value: float, *, share: bool) -> str:
    """Return a score as text: as a percentage if it is a share."""
    return f"{value:.1%}" if share else f"{value:.3g}"


def interval(scores: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean: Wilson's for scores of 0 and 1, the normal one for others.

    Wilson, JASA 1927: (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n).

    >>> [round(x, 3) for x in interval([1.0] * 8 + [0.0] * 2)]
    [0.49, 0.943]
    """
    if not scores or set(scores) <= {0.0, 1.0}:
        return share_interval(scores)
    n, mean = len(scores), sum(scores) / len(scores)
    error = math.sqrt(sum((x - mean) ** 2 for x in scores) / max(n - 1, 1) / n)
    return mean - Z95 * error, mean + Z95 * error


def evaluations_without_improvement(scores: Sequence[Sequence[float | None]]) -> int:
    """Return the number of evaluations since the last certain improvement.

    An evaluation is a certain improvement if the 95 % interval of its paired difference from the reference is above
    0. The reference is the last certain improvement, at first the first evaluation, so slow progress adds up.

    Args:
        scores: Of each evaluation, oldest first, the score of every held-out prompt in the same order.
    """
    if not scores:
        return 0
    reference, count = scores[0], 0
    for current in scores[1:]:
        if paired_interval(*differences(reference, current))[0] > 0:
            reference, count = current, 0
        else:
            count += 1
    return count


def differences(before: Sequence[float | None], after: Sequence[float | None]) -> tuple[list[float], float]:
    """Return the differences on prompts that have both scores, and the largest possible difference."""
    pairs = [(a, b) for a, b in zip(before, after, strict=False) if a is not None and b is not None]
    values = list(chain.from_iterable(pairs))
    is_share = all(0.0 <= value <= 1.0 for value in values)
    largest = 1.0 if is_share else max(values) - min(values)
    return [b - a for a, b in pairs], largest


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
