"""Extraction of the final answer of a completion: the boxes after the thinking. Linear in the length of the text."""

from __future__ import annotations

import re
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

    Two boxes with only signs, "and" or "or" between them are alternatives unless their contents are equal.
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
    index = 0 if box == "first" else len(all_boxes) - 1
    chosen = all_boxes[index]
    is_open = any(_are_alternatives(answer_part, all_boxes, i) for i in (index, index + 1))
    is_changed = is_open or changes_answer(answer_part, chosen.start, chosen.end)
    return [] if is_changed else _unwrap([chosen.content])


def _are_alternatives(text: str, all_boxes: list[BoxedAnswer], index: int) -> bool:
    """Return True if the boxes at `index` − 1 and `index` are alternatives to each other."""
    if not 0 < index < len(all_boxes):
        return False
    first, second = all_boxes[index - 1], all_boxes[index]
    between = text[first.end : second.start]
    is_joined = _JOINED.fullmatch(_MARKUP.sub(" ", between)) or (offers_another(between) and len(between) < MAX_BETWEEN)
    conditions = [_CONDITION.match(after) for after in (between, text[second.end :])]
    is_case = conditions[0] and conditions[1] and conditions[0][1].lower() == conditions[1][1].lower()
    return bool(is_joined or is_case) and strip_spaces(first.content) != strip_spaces(second.content)


def _unwrap(contents: list[str]) -> list[str]:
    """Open boxes within boxes; return nothing if a box holds anything beside its inner box."""
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
