"""What a completion commits to: the box that counts, after the thinking. Linear in the length of the text."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from rlm_math.spelling import compact

Box = Literal["last", "only", "first", "all"]

WINDOW = 200_000
"""Characters from the end in which boxes are looked for."""
NESTED = 5

_MARK = re.compile(r"(\\(?:boxed|fbox)\s*\{)|\\.|([{}])", re.S)
_OR = re.compile(r"[\s$.,;:)]*(or|alternatively)\b", re.I)
_JOINED = re.compile(r"[\s$.,;:/()]*(and|or)?[\s$.,;:/()]*", re.I)


class Found(NamedTuple):
    """A box: where it stands in the text, and what it holds."""

    start: int
    end: int
    content: str


def spoken(text: str) -> str | None:
    """What follows the thinking; None while it lasts, or when it ends twice.

    >>> spoken("<think>a</think>b"), spoken("b"), spoken("<think>b"), spoken("a</think>b</think>c")
    ('b', 'b', None, None)
    """
    before, closed, after = text.partition("</think>")
    if "</think>" in after:
        return None
    rest = after if closed else before
    return None if "<think>" in rest else rest


def boxes(text: str) -> list[Found] | None:
    """The outermost boxes in order; None when the last one is never closed.

    >>> [found.content for found in boxes(r"\\boxed{1} so \\boxed{\\frac{1}{2}}")]
    ['1', '\\\\frac{1}{2}']
    >>> boxes(r"\\boxed{1} so \\boxed{2") is None
    True
    """
    open_at: list[tuple[int, int] | None] = []
    found: list[Found] = []
    for mark in _MARK.finditer(text):
        if mark[1]:
            open_at.append((mark.start(), mark.end()))
        elif mark[2] == "{":
            open_at.append(None)
        elif mark[2] == "}" and open_at and (box := open_at.pop()):
            while found and found[-1].start > box[0]:
                found.pop()
            found.append(Found(box[0], mark.end(), text[box[1] : mark.start()]))
    unclosed = max((place[0] for place in open_at if place), default=-1)
    return None if found and unclosed > found[-1].start else found


def committed(text: str, box: Box) -> list[str]:
    """The answers a text commits to, all of which must be right; none when it does not commit itself.

    Two boxes side by side, or joined by "or", are two answers and not one, unless they say the same.
    """
    said = spoken(text)
    if said is None:
        return []
    said = said[-WINDOW:]
    found = boxes(said)
    if not found or (box == "only" and len(found) > 1):
        return []
    if box == "all":
        return _unwrapped([each.content for each in found])
    place = 0 if box == "first" else len(found) - 1
    chosen = found[place]
    if _OR.match(said, chosen.end) or any(_rivals(said, found, i) for i in (place, place + 1)):
        return []
    return _unwrapped([chosen.content])


def _rivals(text: str, found: list[Found], place: int) -> bool:
    """Whether the boxes before and at `place` are alternatives to each other."""
    if not 0 < place < len(found):
        return False
    one, other = found[place - 1], found[place]
    between = text[one.end : other.start]
    beside = _JOINED.fullmatch(between) or (_OR.match(between) and len(between) < 40)
    return bool(beside) and compact(one.content) != compact(other.content)


def _unwrapped(contents: list[str]) -> list[str]:
    """Boxes in boxes opened; nothing when one holds something beside its inner box."""
    opened = []
    for content in contents:
        for depth in range(NESTED + 1):
            if "\\boxed" not in content and "\\fbox" not in content:
                break
            inner = boxes(content)
            if depth == NESTED or not inner or compact(content) != compact(content[inner[0].start : inner[0].end]):
                return []
            content = inner[0].content
        opened.append(content)
    return opened
