"""Knights, who tell the truth, and knaves, who lie: puzzles with exactly one solution, found by enumeration."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from itertools import combinations, product
from typing import Any

from rlm_worlds.puzzle import Puzzle

NAMES = "ABCDEFGH"
Kinds = tuple[bool, ...]
"""One value per person: True for a knight."""
Truth = Callable[[Kinds], bool]
Statement = tuple[str, Truth]
_PAIR = re.compile(r"([A-H])\s*(?:is\s+an?|:|=|is)\s*(knight|knave)s?\b", re.I)
_BETWEEN = re.compile(r"(?:[\s,.;]|\band\b)*", re.I)


def generate(rng: random.Random, people: int) -> Puzzle | None:
    """Return a puzzle with `people` persons; None if this draw has several solutions."""
    kinds = tuple(rng.random() < 0.5 for _ in range(people))
    statements = []
    for speaker in range(people):
        choices = [(text, truth) for text, truth in _statements(speaker, people) if truth(kinds) == kinds[speaker]]
        statements.append(rng.choice(choices))
    if solutions(statements, people) != [kinds]:
        return None
    speech = "\n".join(f'{NAMES[i]} says: "{text}"' for i, (text, _) in enumerate(statements))
    question = (
        f"On an island live knights, who always tell the truth, and knaves, who always lie.\n{speech}\n"
        f"Who is what? Answer in the form: A: knight, B: knave"
    )
    answer = ", ".join(f"{NAMES[i]}: {_kind(kind)}" for i, kind in enumerate(kinds))
    return Puzzle(question, answer, {"kinds": [int(kind) for kind in kinds]})


def solutions(statements: list[Statement], people: int) -> list[Kinds]:
    """Return all assignments in which knights, and only they, tell the truth."""
    candidates = product((False, True), repeat=people)
    return [kinds for kinds in candidates if all(s(kinds) == kinds[i] for i, (_, s) in enumerate(statements))]


def _statements(speaker: int, people: int) -> list[Statement]:
    """Return what a person may say: of one other, of two others, of all."""
    others = [i for i in range(people) if i != speaker]
    statements = [(f"{NAMES[i]} is a {_kind(kind)}.", _is_of_kind(i, kind)) for i in others for kind in (True, False)]
    for i, j in combinations(others, 2):
        statements.append((f"{NAMES[i]} and {NAMES[j]} are of the same kind.", _are_alike(i, j)))
    statements += [(f"Exactly {count} of us are knights.", _are_knights(count)) for count in range(people + 1)]
    return statements


def _is_of_kind(person: int, kind: bool) -> Truth:
    return lambda kinds: kinds[person] == kind


def _are_alike(person: int, other: int) -> Truth:
    return lambda kinds: kinds[person] == kinds[other]


def _are_knights(count: int) -> Truth:
    return lambda kinds: sum(kinds) == count


def _kind(is_knight: bool) -> str:
    return "knight" if is_knight else "knave"


def is_solution(task: Mapping[str, Any], answer: str) -> bool:
    """Return True if an answer names every person once, with the right kind, and says nothing else.

    >>> texts = ("A: knight, B: knave", "A is a knight. B is a knave", "A: knight")
    >>> [is_solution({"kinds": [1, 0]}, text) for text in texts]
    [True, True, False]
    """
    pairs = _PAIR.findall(answer)
    if not _BETWEEN.fullmatch(_PAIR.sub(" ", answer)) or len(pairs) != len(task["kinds"]):
        return False
    named = {name.upper(): kind.lower() for name, kind in pairs}
    return named == {NAMES[i]: _kind(bool(kind)) for i, kind in enumerate(task["kinds"])}
