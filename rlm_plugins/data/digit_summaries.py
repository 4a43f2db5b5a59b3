"""A row of digits, and what it is mostly made of: a summary short enough to count by hand, and a taste in summaries."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass

SHORTEST, LONGEST = 3, 8
"""Digits of the summaries that writers write."""


def summary_quality(text: str, summary: str, price: float) -> float:
    """How good a summary is: the share of the digits of `text` it names, less `price` for each of its characters.

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
    """Writes texts, summaries of them, and says which of two summaries it likes better.

    Args:
        length: Digits of a text.
        price: What a character of a summary costs.
        noise: How undecided it is: P(a ≻ b) = σ((worth(a) − worth(b)) / noise).
        random: Whatever it draws from.
    """

    length: int
    price: float
    noise: float
    random: random.Random

    def text(self) -> str:
        """Digits of which a few are frequent: each follows one that is there already, three times out of four."""
        digits: list[str] = []
        while len(digits) < self.length:
            digits.append(self.random.choice(digits if digits and self.random.random() < 0.75 else "0123456789"))
        self.random.shuffle(digits)
        return "".join(digits)

    def summary(self, text: str) -> str:
        """Digits of the text as the eye falls on them, three to eight: the frequent ones often, many of them twice."""
        return "".join(self.random.choice(text) for _ in range(self.random.randint(SHORTEST, LONGEST)))

    def ranked(self, text: str, a: str, b: str) -> tuple[str, str]:
        """The one it prefers, and the other."""
        difference = (summary_quality(text, a, self.price) - summary_quality(text, b, self.price)) / self.noise
        likes_a = self.random.random() < 1 / (1 + math.exp(-max(-50.0, min(50.0, difference))))
        return (a, b) if likes_a else (b, a)
