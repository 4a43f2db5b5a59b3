"""Who votes for what: the answer a completion commits to, counted over all answers to one question. Text only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction

from rlm_plugins.data.answer_extraction import Untagged, final_answers, parse_number

Answer = Fraction | str
"""A number where it is one, so that 0.5 and 1/2 are one vote; else the text, up to white space around it."""


def answer(text: str, tag: str, untagged: Untagged) -> Answer | None:
    """The one answer of a completion; None where it gives none, or several that differ.

    Args:
        text: What the model wrote.
        tag: The block that holds an answer.
        untagged: What the answer is where there is no block; as for the reward `accuracy`.

    >>> answer("<answer>1,000</answer>", "answer", "wrong"), answer("<answer> </answer>", "answer", "wrong")
    (Fraction(1000, 1), None)
    """
    found = {said(each) for each in final_answers(text, tag, untagged)}
    return found.pop() if len(found) == 1 else None


def said(text: object) -> Answer | None:
    """An answer as it is counted; None for an empty one."""
    plain = str(text).strip()
    value = parse_number(plain)
    return value if value is not None else plain or None


def rows_by(keys: Sequence[object]) -> dict[str, list[int]]:
    """Key → its rows; of what cannot be hashed (messages), by what it looks like."""
    found: dict[str, list[int]] = {}
    for row, key in enumerate(keys):
        found.setdefault(repr(key), []).append(row)
    return found


def votes(answers: Sequence[Answer | None]) -> Counter[Answer]:
    """How often each answer was given; who gave none does not vote."""
    return Counter(each for each in answers if each is not None)


def elected(weights: Mapping[Answer, int] | Mapping[Answer, Fraction]) -> Answer | None:
    """The answer with the most votes; None where nobody voted, or where several have as many.

    >>> elected({"a": 2, "b": 1}), elected({"a": 1, "b": 1})
    ('a', None)
    """
    best = max(weights.values(), default=0)
    winners = [each for each, weight in weights.items() if weight == best]
    return winners[0] if len(winners) == 1 else None


def agrees(answers: Sequence[Answer | None], label: Hashable) -> list[float]:
    """1 for each row that gives the label, else 0."""
    return [float(each == label) for each in answers]
