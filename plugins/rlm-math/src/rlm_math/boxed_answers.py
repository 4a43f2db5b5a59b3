"""Extraction of the final answer of a completion: the boxes after the thinking. Linear in the length of the text."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal, NamedTuple

from rlm_math.box_context import changes_answer, offers_another
from rlm_math.latex_normalization import normalize_latex, strip_spaces

Box = Literal["last", "only", "first", "all"]

SEARCH_WINDOW = 200_000
"""Number of characters at the end of the text that are searched for boxes."""
MAX_NESTING = 5

_MARK = re.compile(r"(\\(?:boxed|fbox)\s*\{)|\\.|([{}])", re.S)
MAX_BETWEEN = 40
"""Largest number of characters between two alternatives."""
_MARKUP = re.compile(r"\\(?:[A-Za-z]+|.)|</?[A-Za-z]+\s*/?>", re.S)
_JOINED = re.compile(r"[^\w=]*(?:(?:and|or|possibly|maybe|perhaps|或者?|和|与|及|以及|还是)[^\w=]*)*", re.I)
"""What is no correction between two boxes: signs, and no word but those that join answers."""
_OR = re.compile(r"\b(?:or|possibly|maybe|perhaps)\b|或|还是", re.I)
_LIST_NUMBER = re.compile(r"^[ \t]*\d+[.)](?=\s)", re.M)
_CONDITION = re.compile(r"[\s$.,;:)]*(if|when|for|in case)\b", re.I)


class BoxedAnswer(NamedTuple):
    """A box: its position in the text and its content."""

    start: int
    end: int
    content: str


def after_thinking(text: str) -> str | None:
    """Return the text after the thinking; None if the thinking is not closed, or closed twice.

    >>> [after_thinking(text) for text in ("<think>a</think>b", "b", "<think>b", "a</think>b</think>c")]
    ['b', 'b', None, None]
    """
    before, closed, after = text.partition("</think>")
    if "</think>" in after:
        return None
    answer_part = after if closed else before
    return None if "<think>" in answer_part else answer_part


def find_boxes(text: str) -> list[BoxedAnswer] | None:
    """Return the outermost boxes in order; None if the last one is never closed.

    >>> [found.content for found in find_boxes(r"\\boxed{1} so \\boxed{\\frac{1}{2}}")]
    ['1', '\\\\frac{1}{2}']
    >>> find_boxes(r"\\boxed{1} so \\boxed{2") is None
    True
    """
    open_stack: list[tuple[int, int] | None] = []
    closed: list[BoxedAnswer] = []
    for mark in _MARK.finditer(text):
        if mark[1]:
            open_stack.append((mark.start(), mark.end()))
        elif mark[2] == "{":
            open_stack.append(None)
        elif mark[2] == "}" and open_stack and (box := open_stack.pop()):
            while closed and closed[-1].start > box[0]:
                closed.pop()
            closed.append(BoxedAnswer(box[0], mark.end(), text[box[1] : mark.start()]))
    unclosed = max((start[0] for start in open_stack if start), default=-1)
    return None if closed and unclosed > closed[-1].start else closed


def final_answers(text: str, box: Box) -> list[str]:
    """Return the final answers of a text, all of which must be correct; none if the text leaves alternatives open.

    Boxes with only signs, "and" or "or" between them are one answer of several values.
    """
    answer_part = after_thinking(text)
    if answer_part is None:
        return []
    answer_part = answer_part[-SEARCH_WINDOW:]
    all_boxes = find_boxes(answer_part)
    if not all_boxes or (box == "only" and len(all_boxes) > 1):
        return []
    if box == "all":
        is_changed = any(changes_answer(answer_part, one.start, one.end) for one in all_boxes)
        return [] if is_changed else _unwrap([one.content for one in all_boxes])
    first = last = 0 if box == "first" else len(all_boxes) - 1
    while first > 0 and _are_joined(answer_part, *all_boxes[first - 1 : first + 1]):
        first -= 1
    while last + 1 < len(all_boxes) and _are_joined(answer_part, *all_boxes[last : last + 2]):
        last += 1
    parts = all_boxes[first : last + 1]
    if changes_answer(answer_part, parts[0].start, parts[-1].end) or _is_case(answer_part, all_boxes, first):
        return []
    contents = _unwrap([one.content for one in parts])
    has_or = any(_OR.search(answer_part[one.end : two.start]) for one, two in pairwise(parts))
    return [(r" \text{ or } " if has_or else ", ").join(contents)] if contents else []


def _are_joined(text: str, first: BoxedAnswer, second: BoxedAnswer) -> bool:
    """Return True if two different boxes are one answer: only signs, numbers of a list, "and" or "or" are between."""
    between = _MARKUP.sub(" ", _LIST_NUMBER.sub(" ", text[first.end : second.start]))
    is_joined = _JOINED.fullmatch(between) or (offers_another(between) and len(between) < MAX_BETWEEN)
    return bool(is_joined) and strip_spaces(first.content) != strip_spaces(second.content)


def _is_case(text: str, all_boxes: list[BoxedAnswer], index: int) -> bool:
    """Return True if a box and the previous one have a condition each."""
    if index == 0:
        return False
    first, second = all_boxes[index - 1], all_boxes[index]
    conditions = [_CONDITION.match(text[box.end :]) for box in (first, second)]
    is_case = conditions[0] and conditions[1] and conditions[0][1].lower() == conditions[1][1].lower()
    return bool(is_case) and strip_spaces(first.content) != strip_spaces(second.content)


def _unwrap(contents: list[str]) -> list[str]:
    """Open boxes within boxes; return nothing if any box holds anything beside its inner box."""
    opened = []
    for content in contents:
        for depth in range(MAX_NESTING + 1):
            if "\\boxed" not in content and "\\fbox" not in content:
                break
            inner = find_boxes(content)
            if (
                depth == MAX_NESTING
                or not inner
                or strip_spaces(normalize_latex(content))
                != strip_spaces(normalize_latex(content[inner[0].start : inner[0].end]))
            ):
                return []
            content = inner[0].content
        opened.append(content)
    return opened
