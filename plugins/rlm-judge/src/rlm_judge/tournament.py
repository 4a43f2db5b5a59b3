"""Pairings within a group, and win rates from their outcomes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class Candidate(NamedTuple):
    """A completion with its task and reference."""

    task: str
    text: str
    reference: str


class Pair(NamedTuple):
    """Two answers to one task."""

    task: str
    first: str
    second: str

    @property
    def swapped(self) -> Pair:
        """The pair in the other order."""
        return Pair(self.task, self.second, self.first)


class Group(NamedTuple):
    """The answers to one task: each distinct text and its count."""

    task: str
    texts: list[str]
    counts: Counter[str]


def group_by_task(candidates: Sequence[Candidate]) -> list[Group]:
    """Group the candidates by task."""
    by_task: dict[str, Counter[str]] = {}
    for candidate in candidates:
        by_task.setdefault(candidate.task, Counter())[candidate.text] += 1
    return [Group(task, sorted(counts, key=_ring_position), counts) for task, counts in by_task.items()]


def _ring_position(text: str) -> bytes:
    """Return the position of a text on the ring: a hash, independent of its index and quality."""
    return hashlib.blake2b(text.encode("utf-8", "replace")).digest()


def make_pairs(group: Group, opponents: int | None) -> Iterator[Pair]:
    """Yield the pairs to compare."""
    count = len(group.texts)
    max_distance = count if opponents is None else (opponents + 1) // 2
    for i in range(count):
        for j in range(i + 1, count):
            if min(j - i, count - (j - i)) <= max_distance:
                yield Pair(group.task, group.texts[i], group.texts[j])


def win_rates(group: Group, outcomes: Mapping[Pair, float]) -> dict[tuple[str, str], float | None]:
    """Return (task, text) → share of comparisons won; each opponent counts as often as it was generated."""
    rates: dict[tuple[str, str], float | None] = {}
    for text in group.texts:
        won, played = 0.5 * (group.counts[text] - 1), group.counts[text] - 1
        for other in group.texts:
            pair = Pair(group.task, text, other)
            outcome = outcomes.get(pair)
            if outcome is None and pair.swapped in outcomes:
                outcome = 1.0 - outcomes[pair.swapped]
            if other != text and outcome is not None:
                won, played = won + outcome * group.counts[other], played + group.counts[other]
        rates[group.task, text] = won / played if played else None
    return rates
