"""A world in which the reward is a matter of taste. (Offered by `environments` and `rewards`.)"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated, Any

from pydantic import Field, NonNegativeFloat, PositiveFloat

from rlm_plugins.data.digit_summaries import SummaryWriter, summary_quality
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
    seed: int = 0,
) -> EnvironmentSpec:
    """Say in few digits what a row of digits is mostly made of: ``7773727712?`` → ``72``; which of two is better?

    Columns: ``prompt``; ``demonstration``, by a writer who names three to eight digits as the eye falls on them, many
    twice; ``chosen`` and ``rejected``, two more by the same hand, ranked by readers. A reader likes what the reward
    `gist` measures (the share of digits that are named, less `price` per character), but is not sure:
    P(a ≻ b) = σ((gist(a) − gist(b)) / `noise`). So nobody shows what is best, and a reward model can learn it: a small
    world for learning from human feedback. Nor has a reader ever seen a summary of less than three digits: what a
    reward model says of those, nobody has told it.

    One text in eight, chosen by a hash, is never trained on, whatever `seed` or `train_rows`; the test rows are the
    same for every seed.

    >>> gist_environment(train_rows=1, test_rows=1, length=4).test[0].keys() >= {"prompt", "chosen", "rejected"}
    True
    """

    def rows(name: str, held_out: bool) -> Iterator[dict[str, Any]]:
        author = SummaryWriter(length, price, noise, random.Random(name))
        seen: set[str] = set()
        while True:
            text = author.text()
            if _held_out(text) is not held_out or (held_out and text in seen):
                continue
            seen.add(text)
            summary, one, other = (author.summary(text) for _ in range(3))
            chosen, rejected = author.ranked(text, one, other)
            prompt = [{"role": "user", "content": f"{text}?"}]
            yield {"prompt": prompt, "demonstration": summary, "chosen": chosen, "rejected": rejected}

    train, test = rows(f"gist {length} {seed}", False), rows(f"gist {length} test", True)
    return EnvironmentSpec(train=list(islice(train, train_rows)), test=list(islice(test, test_rows)))


def _held_out(text: str) -> bool:
    return hashlib.blake2b(text.encode(), digest_size=1).digest()[0] < 32


def gist(prompts: Sequence[str], completions: Sequence[str], *, price: NonNegativeFloat = PRICE) -> list[float]:
    """How good a summary of the digits in its prompt is: the share of them it names, less `price` per character.

    >>> [round(score, 2) for score in gist(["7773727712?"] * 3, ["72", "7733", ""])]
    [0.5, 0.1, 0.0]
    """
    return [summary_quality(asked, said, price) for asked, said in zip(prompts, completions, strict=True)]
