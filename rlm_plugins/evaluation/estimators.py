"""Unbiased estimators of pass@k and majority@k from n samples of a prompt, and intervals over prompts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache

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
