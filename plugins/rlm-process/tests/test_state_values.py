"""Sampled values against exact ones in an environment that can be enumerated."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import product

import pytest
import torch
from rlm_process.knobs import Every
from rlm_process.state_values import State, mean_values, sample_continuations, step_states
from rlm_process.vine import vine

LENGTH = 4
CHANCE = {1: 0.5, 2: 0.3, 3: 0.2}


def worth(row: Sequence[int]) -> float:
    """Return 1 for three different tokens, ½ for a final pair of ones."""
    return 1.0 if len({*row}) == 3 else 0.5 if row[-2:] == (1, 1) else 0.0


@cache
def exact(prefix: tuple[int, ...]) -> float:
    """Return the exact value of a state: all continuations, weighted by probability."""
    total = 0.0
    for rest in product(CHANCE, repeat=LENGTH - len(prefix)):
        p = 1.0
        for token in rest:
            p *= CHANCE[token]
        total += p * worth((*prefix, *rest))
    return total


class Policy:
    """A policy with fixed token probabilities that counts its calls."""

    def __init__(self, seed: int = 0) -> None:
        self._dice = random.Random(seed)
        self.encode: Counter[tuple[int, ...]] = Counter()

    def write(self, prefix: tuple[int, ...] = ()) -> tuple[int, ...]:
        more = self._dice.choices([*CHANCE], [*CHANCE.values()], k=LENGTH - len(prefix))
        return (*prefix, *more)

    def __call__(self, rows: Sequence[int], prefixes: Sequence[Sequence[int]]) -> list[float | None]:
        self.encode.update(map(tuple, prefixes))
        return [worth(self.write(tuple(prefix))) for prefix in prefixes]


def answers(policy: Policy, count: int) -> tuple[list[tuple[int, ...]], list[list[State]]]:
    rows = [policy.write() for _ in range(count)]
    return rows, step_states([0] * count, rows, [[*range(1, LENGTH + 1)]] * count)


def test_sampled_values_converge():
    """Every state is within four standard errors; sixteen times the samples give a quarter of the error."""
    policy = Policy()
    _, before = answers(policy, 40)
    errors = []
    for continuations in (100, 1600):
        found = mean_values(sample_continuations(before, policy, continuations=continuations))
        assert len(found) > 20
        for (_, prefix), value in found.items():
            assert value == pytest.approx(exact(prefix), abs=4 * 0.5 / continuations**0.5)
        errors.append(sum((value - exact(prefix)) ** 2 for (_, prefix), value in found.items() if value is not None))
    assert errors[1] < errors[0] / 8


def test_vine_matches_the_sampled_values():
    """The advantage is computed with the trainer's data: K of 2500, steps of one token."""
    policy = Policy()
    rows = [policy.write() for _ in range(6)]

    def write(prompts: Sequence[str], prefixes: Sequence[Sequence[int]]) -> list[list[int]]:
        return [[*policy.write(tuple(prefix))[len(prefix) :]] for prefix in prefixes]

    def score(
        prompts: Sequence[str], completion_ids: Sequence[Sequence[int]], inputs: Sequence[object]
    ) -> torch.Tensor:
        return torch.tensor([worth(tuple(row)) for row in completion_ids])

    found = vine(
        torch.tensor([[0.0] * (LENGTH - 1) + [worth(row)] for row in rows]),
        torch.ones(6, LENGTH).bool(),
        torch.zeros(6).long(),
        rows,
        ["?"] * 6,
        [{}] * 6,
        write,
        score,
        None,
        lambda name, x: None,
        steps=Every(every=1),
        continuations=2500,
    )
    exactly = [[exact(row[:k]) for k in range(LENGTH)] + [worth(row)] for row in rows]
    torch.testing.assert_close(found, torch.tensor(exactly).diff(dim=1), atol=0.06, rtol=0.0)
