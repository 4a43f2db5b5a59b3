"""A toy summarization task with simulated preferences; registered by `environments` and `rewards`."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveFloat

from rlm_plugins.data.digit_summaries import SummaryWriter, summary_quality
from rlm_plugins.data.trl_formats import pairs_of_ranking
from rlm_plugins.specs import EnvironmentSpec

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Length = Annotated[int, Field(ge=4, le=100)]
PRICE = 0.15


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
