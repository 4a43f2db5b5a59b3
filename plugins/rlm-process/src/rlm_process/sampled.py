"""What the states on the way of an answer are worth, by having the policy write on from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

State = tuple[int, tuple[int, ...]]
"""Where an answer stands: its group, and the tokens written so far."""

Ask = Callable[[Sequence[int], Sequence[Sequence[int]]], Sequence[float | None]]
"""Rows and prefixes → scores: the policy goes on from each prefix as an answer to the prompt of its row, once."""


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
