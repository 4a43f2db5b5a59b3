"""Who meets whom within a group, and what comes of it."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """A completion as it is compared."""

    task: str
    text: str
    reference: str


class Pair(NamedTuple):
    """Two answers to one task."""

    task: str
    first: str
    second: str

    @property
    def turned(self) -> Pair:
        """The same in the other order."""
        return Pair(self.task, self.second, self.first)


class Group(NamedTuple):
    """The answers to one task, each text once, and how often each was given."""

    task: str
    texts: list[str]
    times: Counter[str]


def groups_of(rows: Sequence[Row]) -> list[Group]:
    """The answers by task."""
    found: dict[str, Counter[str]] = {}
    for row in rows:
        found.setdefault(row.task, Counter())[row.text] += 1
    return [Group(task, sorted(times, key=_place), times) for task, times in found.items()]


def _place(text: str) -> bytes:
    """Where a text stands on the ring: whatever its row, and unrelated to how good it is."""
    return hashlib.blake2b(text.encode("utf-8", "replace")).digest()


def pairs_of(group: Group, opponents: int | None) -> Iterator[Pair]:
    """Who meets whom."""
    count = len(group.texts)
    reach = count if opponents is None else (opponents + 1) // 2
    for i in range(count):
        for j in range(i + 1, count):
            if min(j - i, count - (j - i)) <= reach:
                yield Pair(group.task, group.texts[i], group.texts[j])


def rates_of(group: Group, beats: Mapping[Pair, float]) -> dict[tuple[str, str], float | None]:
    """(task, text) → how often the text wins; each opponent counts as often as it was written."""
    rates: dict[tuple[str, str], float | None] = {}
    for text in group.texts:
        won, met = 0.5 * (group.times[text] - 1), group.times[text] - 1
        for other in group.texts:
            pair = Pair(group.task, text, other)
            beaten = beats[pair] if pair in beats else 1.0 - beats[pair.turned] if pair.turned in beats else None
            if other != text and beaten is not None:
                won, met = won + beaten * group.times[other], met + group.times[other]
        rates[group.task, text] = won / met if met else None
    return rates
