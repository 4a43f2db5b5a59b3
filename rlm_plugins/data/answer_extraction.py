"""The answer a completion commits to, and whether it is the right one. Pure text: nothing is ever evaluated."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import islice
from typing import Literal

Untagged = Literal["last_line", "last_number", "boxed", "wrong"]

LONGEST_NUMBER = 1000
"""Characters beyond which a text is no number; keeps exact arithmetic cheap whatever a model writes."""

_DECIMAL = r"(?:(?:[0-9]+|[1-9][0-9]{0,2}(?:,[0-9]{3})+)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_DIGIT = re.compile("[0-9]")
_NUMBER = re.compile(rf"([+-]?{_DECIMAL})(?: ?/ ?({_DECIMAL}))?")


def final_answers(text: str, tag: str, untagged: Untagged) -> list[str]:
    """Every answer that `text` commits to after its thinking; none when it is unfinished.

    Only what follows the last ``</think>`` counts, and nothing does while a ``<think>`` is open. There each
    ``<tag>…</tag>`` is an answer; a block that is never closed leaves the text without any. Without blocks,
    `untagged` says what the answer is: the last line, the last word that holds a digit, what the last ``\\boxed{…}``
    holds, or nothing.

    >>> final_answers("<think><answer>1</answer></think>so <answer>2</answer>", "answer", "wrong")
    ['2']
    """
    spoken = text.rpartition("</think>")[2]
    if "<think>" in spoken:
        return []
    blocks = [block.partition(f"</{tag}>") for block in spoken.split(f"<{tag}>")[1:]]
    if blocks:
        return [body for body, _, _ in blocks] if all(closed for _, closed, _ in blocks) else []
    if untagged == "last_line":
        return spoken.strip().splitlines()[-1:]
    if untagged == "last_number":
        return [_bare(word) for word in islice(filter(_DIGIT.search, reversed(spoken.split())), 1)]
    return _boxed(spoken) if untagged == "boxed" else []


def _boxed(text: str) -> list[str]:
    """What the last box holds, braces in it included; nothing when it is never closed."""
    _, box, rest = text.rpartition("\\boxed{")
    depth = 1
    for place, character in enumerate(rest if box else ""):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return [rest[:place]]
    return []


def parse_number(text: str) -> Fraction | None:
    """The exact value of ``632``, ``-1,234.50``, ``.5``, ``3e-4`` or ``2/3``; None for anything else.

    Units, percent signs, NaN and infinity are no numbers; neither is what has misplaced thousands separators.

    >>> parse_number("1,234.5"), parse_number("2/4"), parse_number("12,34"), parse_number("50%"), parse_number("inf")
    (Fraction(2469, 2), Fraction(1, 2), None, None, None)
    """
    plain = text.strip().replace("−", "-")
    match = _NUMBER.fullmatch(plain) if len(plain) <= LONGEST_NUMBER else None
    if match is None:
        return None
    above, below = (Fraction(part.replace(",", "")) for part in match.groups(default="1"))
    return above / below if below else None


def _bare(word: str) -> str:
    """`word` without the brackets, emphasis and punctuation around it that cannot change a number."""
    return word.lstrip("([{*_=$:").rstrip(")]}*_$:;,.")


def same_text(gold: str, *, casefold: bool) -> Callable[[str], bool]:
    """A test for being `gold`, up to the white space around it."""
    fold = str.casefold if casefold else str
    return lambda found: fold(found.strip()) == fold(gold.strip())


def same_number(gold: Fraction, *, tolerance: float) -> Callable[[str], bool]:
    """A test for being a number at most `tolerance` away from `gold`."""
    # through its decimal notation, so that 0.01 is a hundredth and not the float below it
    reach = Fraction(repr(tolerance))

    def same(found: str) -> bool:
        value = parse_number(found)
        return value is not None and abs(value - gold) <= reach

    return same
