"""A toy summarization task: digit strings, summaries of their frequent digits, and simulated preferences."""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveFloat

from rlm_plugins.data.trl_formats import pairs_of_ranking
from rlm_plugins.equation.knobs import Count, Natural
from rlm_plugins.specs import EnvironmentSpec

Length = Annotated[int, Field(ge=4, le=100)]
PRICE = 0.15


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


def gist_environment(
    *,
    length: Length = 10,
    noise: PositiveFloat = 0.1,
    price: NonNegativeFloat = PRICE,
    train_rows: Count = 8192,
    test_rows: Natural = 256,
    ranked: Annotated[int, Field(ge=2)] = 2,
    seed: int = 0,
) -> EnvironmentSpec:
    """Summaries of a digit string by its frequent digits, ``7773727712?`` → ``72``, with preference pairs.

    Columns: ``prompt``; ``demonstration``, three to eight digits drawn from the text with replacement; ``chosen`` and
    ``rejected``, two more such summaries with a simulated preference. The preference follows the reward `gist` (the
    share of digits that are named, less `price` per character) with noise: P(a ≻ b) = σ((gist(a) − gist(b)) / `noise`).
    So no example shows the best summary, but a reward model can learn it: a small task for learning from human
    feedback. No pair has a summary of less than three digits, so a reward model extrapolates there.

    With `ranked` K > 2 an annotator ranks K summaries of a training text. Each of their K · (K − 1) / 2 pairs is an
    example. InstructGPT, arXiv 2203.02155, has K from 4 to 9.

    One text in eight, chosen by a hash, is never in the training set, for any `seed` or `train_rows`; the test examples
    are the same for every seed.

    >>> gist_environment(train_rows=1, test_rows=1, length=4).test[0].keys() >= {"prompt", "chosen", "rejected"}
    True
    """

    def examples(name: str, held_out: bool) -> Iterator[dict[str, Any]]:
        writer = SummaryWriter(length, price, noise, random.Random(name))
        seen: set[str] = set()
        while True:
            text = writer.text()
            if _held_out(text) is not held_out or (held_out and text in seen):
                continue
            seen.add(text)
            summary, first, second = (writer.summary(text) for _ in range(3))
            chosen, rejected = writer.ranked(text, first, second)
            prompt = [{"role": "user", "content": f"{text}?"}]
            yield {"prompt": prompt, "demonstration": summary, "chosen": chosen, "rejected": rejected}

    def rankings(name: str) -> Iterator[dict[str, Any]]:
        annotator = SummaryWriter(length, price, noise, random.Random(f"{name} ranked {ranked}"))
        for example in examples(name, False):
            text = example["prompt"][0]["content"].removesuffix("?")
            ranking = annotator.ranking(text, [annotator.summary(text) for _ in range(ranked)])
            for chosen, rejected in pairs_of_ranking(ranking):
                yield {**example, "chosen": chosen, "rejected": rejected}

    name = f"gist {length} {seed}"
    train, test = examples(name, False) if ranked == 2 else rankings(name), examples(f"gist {length} test", True)
    return EnvironmentSpec(train=list(islice(train, train_rows)), test=list(islice(test, test_rows)))


def _held_out(text: str) -> bool:
    return hashlib.blake2b(text.encode(), digest_size=1).digest()[0] < 32


def gist(prompts: Sequence[str], completions: Sequence[str], *, price: NonNegativeFloat = PRICE) -> list[float]:
    """Quality of a summary of the digits in its prompt: the share that it names, less `price` per character.

    >>> [round(score, 2) for score in gist(["7773727712?"] * 3, ["72", "7733", ""])]
    [0.5, 0.1, 0.0]
    """
    return [summary_quality(text, summary, price) for text, summary in zip(prompts, completions, strict=True)]
