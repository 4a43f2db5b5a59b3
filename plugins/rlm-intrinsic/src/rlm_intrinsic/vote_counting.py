"""Votes: the final answer of each completion, counted over the completions of one prompt. Text only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from fractions import Fraction

from rlm_plugins.data.answer_extraction import Untagged, final_answers, parse_number

Answer = Fraction | str
"""A number if possible, so that 0.5 and 1/2 are the same vote; else the stripped text."""


def answer(text: str, tag: str, untagged: Untagged) -> Answer | None:
    """Return the answer of a completion; None if it has none, or several that differ.

    Args:
        text: The completion.
        tag: The block that holds an answer.
        untagged: The answer of a completion without the block; as for the reward `accuracy`.

    >>> answer("<answer>1,000</answer>", "answer", "wrong"), answer("<answer> </answer>", "answer", "wrong")
    (Fraction(1000, 1), None)
    """
    answers = {normalize(final) for final in final_answers(text, tag, untagged)}
    return answers.pop() if len(answers) == 1 else None


def normalize(text: object) -> Answer | None:
    """Return an answer in the form in which votes are counted; None for an empty one."""
    stripped = str(text).strip()
    value = parse_number(stripped)
    return value if value is not None else stripped or None


def group_indices(keys: Sequence[object]) -> dict[str, list[int]]:
    """Return key → indices with this key; unhashable keys (messages) are compared by their `repr`."""
    groups: dict[str, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(repr(key), []).append(index)
    return groups


def count_votes(answers: Sequence[Answer | None]) -> Counter[Answer]:
    """Count each answer; completions without an answer do not vote."""
    return Counter(choice for choice in answers if choice is not None)


def majority_of(weights: Mapping[Answer, int] | Mapping[Answer, Fraction]) -> Answer | None:
    """Return the answer with the most votes; None without votes, or for a tie.

    >>> majority_of({"a": 2, "b": 1}), majority_of({"a": 1, "b": 1})
    ('a', None)
    """
    best = max(weights.values(), default=0)
    winners = [choice for choice, weight in weights.items() if weight == best]
    return winners[0] if len(winners) == 1 else None


def matches_label(answers: Sequence[Answer | None], label: Hashable) -> list[float]:
    """Return 1 for each completion whose answer is the label, else 0."""
    return [float(choice == label) for choice in answers]
