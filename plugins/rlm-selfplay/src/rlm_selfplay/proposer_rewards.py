"""Reward of a proposed task, from the answers of the solver."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def learnability(rate: float) -> float:
    """Return 0 for a task that is always or never solved, else its failure rate: r = 1 − p̂ if 0 < p̂ < 1, else 0.

    Absolute Zero, arXiv 2505.03335 eq. 4.

    >>> learnability(0.25), learnability(0.0), learnability(1.0)
    (0.75, 0.0, 0.0)
    """
    return 1.0 - rate if 0 < rate < 1 else 0.0


def uncertainty(rate: float) -> float:
    """Return 1 where the solver is right half of the time, 0 where it always or never is: r = 1 − 2 |p̂ − ½|.

    R-Zero, arXiv 2508.05004 eq. 3; p̂ is the share of the most frequent answer there.

    >>> uncertainty(0.5), uncertainty(0.75), uncertainty(1.0)
    (1.0, 0.5, 0.0)
    """
    return 1.0 - 2.0 * abs(rate - 0.5)


def disagreement(rate: float) -> float:
    """Return 1 if some, but not all, of the solver's answers are right: r = 1[0 < p̂ < 1].

    Self-questioning language models (SQLM), arXiv 2508.03682.

    >>> disagreement(0.125), disagreement(1.0)
    (1.0, 0.0)
    """
    return float(0 < rate < 1)


REWARDS: dict[str, Callable[[float], float]] = {
    "learnability": learnability,
    "uncertainty": uncertainty,
    "disagreement": disagreement,
}
"""Knob → reward of a task by its solve rate p̂."""


def repetition(texts: Sequence[str], threshold: float) -> list[float]:
    """Return the share of the batch that is similar to each text: |C| / B, C its cluster.

    R-Zero, arXiv 2508.05004 eq. 4: the penalty λ |C_k| / B is subtracted from the uncertainty, and the result is not
    below 0. The paper clusters by BLEU with average linkage. Here two texts are linked if the Jaccard index of their
    trigrams of characters is `threshold` or more; a cluster is a connected component of these links.

    >>> repetition(["3+4*x", "3+4*x", "abcdef"], 0.5)
    [0.6666666666666666, 0.6666666666666666, 0.3333333333333333]
    """
    cluster = list(range(len(texts)))
    trigrams = [_trigrams(text) for text in texts]
    for i in range(len(texts)):
        for j in range(i):
            shared = len(trigrams[i] & trigrams[j]) / len(trigrams[i] | trigrams[j])
            if shared >= threshold and cluster[i] != cluster[j]:
                old, new = cluster[i], cluster[j]
                cluster = [new if number == old else number for number in cluster]
    return [cluster.count(number) / len(texts) for number in cluster]


def _trigrams(text: str) -> set[str]:
    padded = f"^{text}$"
    return {padded[i : i + 3] for i in range(max(1, len(padded) - 2))}
