"""BM25 ranking of short texts, in memory."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence


class Index:
    """An inverted index.

    score(d, q) = Σ_t idf(t) · f(t, d) · (k + 1) / (f(t, d) + k · (1 − b + b · |d| / mean |d|)), with
    idf(t) = ln(1 + (N − n_t + 0.5) / (n_t + 0.5)). Source: Robertson and Zaragoza, 2009.

    Args:
        texts: The documents.
        k, b: Saturation of the frequency, and weight of the length.
    """

    def __init__(self, texts: Sequence[str], k: float = 1.5, b: float = 0.75) -> None:
        self._texts, self._k, self._b = list(texts), k, b
        self._counts = [Counter(words(text)) for text in texts]
        self._lengths = [counts.total() for counts in self._counts]
        self._mean = sum(self._lengths) / max(1, len(texts))
        self._documents: dict[str, list[int]] = {}
        for number, counts in enumerate(self._counts):
            for word in counts:
                self._documents.setdefault(word, []).append(number)

    def search(self, query: str, count: int) -> list[str]:
        """Return up to `count` texts with a word of the query, best first; ties in the order of the texts."""
        scores: Counter[int] = Counter()
        for word in set(words(query)):
            postings = self._documents.get(word, [])
            idf = math.log(1 + (len(self._texts) - len(postings) + 0.5) / (len(postings) + 0.5))
            for number in postings:
                frequency = self._counts[number][word]
                norm = self._k * (1 - self._b + self._b * self._lengths[number] / self._mean)
                scores[number] += idf * frequency * (self._k + 1) / (frequency + norm)  # type: ignore[assignment]
        ranked = sorted(scores, key=lambda number: (-scores[number], number))
        return [self._texts[number] for number in ranked[:count]]


def words(text: str) -> list[str]:
    """Return the words of a text in lower case.

    >>> words("Who founded Vandor?")
    ['who', 'founded', 'vandor']
    """
    return re.findall(r"[a-z0-9]+", text.lower())
