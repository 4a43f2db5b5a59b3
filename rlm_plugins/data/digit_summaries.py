"""A toy summarization task: digit strings, summaries of their frequent digits, and simulated preferences."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

SHORTEST, LONGEST = 3, 8
"""Minimum and maximum number of digits of a demonstrated summary."""


def summary_quality(text: str, summary: str, price: float) -> float:
    """Return the quality of a summary: the share of the digits of `text` that it names, less `price` per character.

    >>> round(summary_quality("7773727712", "7", 0.15), 2), round(summary_quality("7773727712", "72", 0.15), 2)
    (0.45, 0.5)
    >>> round(summary_quality("7773727712", "77", 0.15), 2)
    0.3
    """
    counts = Counter(filter(str.isdigit, text))
    named = sum(counts[digit] for digit in {*summary})
    return named / max(counts.total(), 1) - price * len(summary)


@dataclass(frozen=True)
class SummaryWriter:
    """A simulated annotator: generates texts and summaries, and ranks pairs of summaries.

    Args:
        length: Digits of a text.
        price: Cost of each character of a summary.
        noise: Temperature of the preferences: P(a ≻ b) = σ((quality(a) − quality(b)) / noise).
        random: The random number generator.
    """

    length: int
    price: float
    noise: float
    random: random.Random

    def text(self) -> str:
        """Return digits of which a few are frequent: each copies an earlier one with probability 3/4."""
        digits: list[str] = []
        while len(digits) < self.length:
            digits.append(self.random.choice(digits if digits and self.random.random() < 0.75 else "0123456789"))
        self.random.shuffle(digits)
        return "".join(digits)

    def summary(self, text: str) -> str:
        """Return three to eight digits drawn from the text with replacement: frequent digits are likely, also twice."""
        return "".join(self.random.choice(text) for _ in range(self.random.randint(SHORTEST, LONGEST)))

    def ranking(self, text: str, summaries: Sequence[str]) -> list[str]:
        """Return summaries from the best to the worst, any two in the order of :meth:`ranked` with its probability.

        The quality in units of the noise plus a Gumbel variable decides (Plackett–Luce).
        """
        scores = {
            number: summary_quality(text, summary, self.price) / self.noise
            - math.log(-math.log(1.0 - self.random.random()) or 1e-300)
            for number, summary in enumerate(summaries)
        }
        return [summaries[number] for number in sorted(scores, key=scores.__getitem__, reverse=True)]

    def ranked(self, text: str, a: str, b: str) -> tuple[str, str]:
        """Return the preferred summary and the rejected one."""
        difference = (summary_quality(text, a, self.price) - summary_quality(text, b, self.price)) / self.noise
        prefers_a = self.random.random() < 1 / (1 + math.exp(-max(-50.0, min(50.0, difference))))
        return (a, b) if prefers_a else (b, a)
