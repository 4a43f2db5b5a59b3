"""Votes of several models on one prompt, each weighted by its self-consistency."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from rlm_intrinsic.vote_counting import Answer, count_votes, majority_of


class Ballot(NamedTuple):
    """Result of a vote on one prompt.

    Args:
        label: The answer with the largest weighted count; None for a tie, or without votes.
        consistency: Mean of SC over the models, from 0 to 1.
        unanimous: True if all models have the same most frequent answer.
    """

    label: Answer | None
    consistency: float
    unanimous: bool


def self_consistency(voter: Sequence[Answer | None]) -> Fraction:
    """Return SC = max_a count(a) / K of a model's K answers to one prompt; 0 without answers."""
    return Fraction(max(count_votes(voter).values(), default=0), max(len(voter), 1))


def weighted_votes(voters: Sequence[Sequence[Answer | None]]) -> dict[Answer, Fraction]:
    """Return answer → Σₙ SCₙ · countₙ as exact fractions, so that ties are exact."""
    total: dict[Answer, Fraction] = {}
    for voter in voters:
        consistency = self_consistency(voter)
        for choice, count in count_votes(voter).items():
            total[choice] = total.get(choice, Fraction(0)) + consistency * count
    return total


def collective_votes(voters: Sequence[Sequence[Answer | None]]) -> Ballot:
    """Count the votes of several models on one prompt.

    >>> collective_votes([["6", "6"], ["5", "4"]])
    Ballot(label='6', consistency=0.75, unanimous=False)
    """
    favorites = {majority_of(count_votes(voter)) for voter in voters}
    consistency = sum(self_consistency(voter) for voter in voters) / len(voters)
    label = majority_of(weighted_votes(voters))
    return Ballot(label, float(consistency), len(favorites) == 1 and None not in favorites)
