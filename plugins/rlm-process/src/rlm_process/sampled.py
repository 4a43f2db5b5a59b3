"""What the states on the way of an answer are worth, by having the policy write on from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlm_plugins.batch import Generate, RewardsOf

State = tuple[int, tuple[int, ...]]
"""Where an answer stands: its group, and the tokens written so far."""

Ask = Callable[[Sequence[int], Sequence[Sequence[int]]], Sequence[float | None]]
"""Rows and prefixes → scores: the policy goes on from each prefix as an answer to the prompt of its row, once."""


@dataclass(frozen=True)
class Questions:
    """How the policy is asked: as :data:`Ask`, by the words of the scoring room.

    Args:
        prompts, inputs: Of every row.
        write, score: The policy goes on; the recipe's rewards judge the whole.
    """

    prompts: Sequence[Any]
    inputs: Sequence[Any]
    write: Generate
    score: RewardsOf

    def __call__(self, rows: Sequence[int], prefixes: Sequence[Sequence[int]]) -> list[float | None]:
        """Has them written, and judged."""
        rest = self.write([self.prompts[row] for row in rows], prefixes)
        return self.judged(rows, [[*start, *end] for start, end in zip(prefixes, rest, strict=True)])

    def judged(self, rows: Sequence[int], wholes: Sequence[Sequence[int]]) -> list[float | None]:
        """What the recipe's rewards say of whole answers, before any shaper; None where none applies."""
        answers = [(row, tuple(whole)) for row, whole in zip(rows, wholes, strict=True)]
        first = {answer: number for number, answer in enumerate(dict.fromkeys(answers))}
        said = self.score(  # what came out twice is asked about once
            [self.prompts[row] for row, _ in first],
            [list(whole) for _, whole in first],
            [self.inputs[row] for row, _ in first],
        ).tolist()
        return [None if said[first[answer]] != said[first[answer]] else said[first[answer]] for answer in answers]


def states(
    group: Sequence[int], completions: Sequence[Sequence[int]], ends: Sequence[Sequence[int]]
) -> list[list[State]]:
    """Per row the state before each of its steps; rows of a group that begin alike are in the same states.

    >>> states([4, 4], [[1, 2, 3], [1, 5]], [[1, 3], [1, 2]])
    [[(4, ()), (4, (1,))], [(4, ()), (4, (1,))]]
    """
    return [
        [(int(number), tuple(row[:start])) for start in (0, *last[:-1])] if last else []
        for number, row, last in zip(group, completions, ends, strict=True)
    ]


def sampled(before: Sequence[Sequence[State]], ask: Ask, *, continuations: int) -> dict[State, list[float]]:
    """The scores of some continuations from each state, each state asked for once.

    Args:
        before: Per row, the states of which something shall be known.
        ask: Writes on and scores.
        continuations: K, how many of each.

    Returns:
        State → scores; fewer than K where no reward applied to some.
    """
    owner: dict[State, int] = {}
    for row, line in enumerate(before):
        for state in line:
            owner.setdefault(state, row)
    rows = [row for row in owner.values() for _ in range(continuations)]
    scores = ask(rows, [state[1] for state in owner for _ in range(continuations)])
    shares = [scores[i : i + continuations] for i in range(0, len(rows), continuations)]
    found = zip(owner, shares, strict=True)
    return {state: [score for score in share if score is not None] for state, share in found}


def means(scores: Mapping[State, Sequence[float]]) -> dict[State, float | None]:
    """V of each state; None where nothing is known."""
    return {state: sum(each) / len(each) if each else None for state, each in scores.items()}
