"""The final answer of a completion: the last box after the thinking that is not empty. Linear in the text's length."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Literal, NamedTuple

from rlm_math.notation import normalize_latex, strip_spaces

Box = Literal["last", "only", "first", "all", "number"]

SEARCH_WINDOW = 200_000
"""Number of characters at the end of the text that are searched for boxes."""
MAX_NESTING = 5
LONGEST_LINE = 300
"""Characters of a line without a box that may be an answer."""
_MARK = re.compile(r"(\\{1,2}(?:boxed|fbox)\s*\{)|\\boxed\s*(-?\d[\d.,/]*(?<![.,])|[A-Z](?![A-Za-z]))|\\.|([{}])", re.S)
_MARKUP = re.compile(r"\\(?:[A-Za-z]+|.)|</?[A-Za-z]+\s*/?>", re.S)
_NAME = re.compile(r"\$?\s*[A-Za-z](?:_\{?\w+\}?)?\s*=\s*$")
_JOINED = re.compile(r"[^\w=]*(?:(?:and|or|possibly|maybe|perhaps)[^\w=]*)*", re.I)
"""What is no correction between two boxes: signs, and no word but those that join answers."""
_OR = re.compile(r"\b(?:or|possibly|maybe|perhaps)\b|\\l?or\b", re.I)
_SENTENCE = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{3,}")
_LIST_NUMBER = re.compile(r"^[ \t]*\d+[.)](?=\s)", re.M)
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:/\d+)?")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")
_DELIMITERS = re.compile(r"\$+|\\[()\[\]]")
_EMPHASIS = re.compile(r"([*_]{1,3})$")
_TOUCHES_BEFORE = re.compile(
    r"(?:[-−+/*^_¬√≠]|!=|(?<![A-Za-z\\'’])[A-Za-z]|\d\.?)\{?$|(?:\\text\{\s*not\s*\}|\bnot|n['’]t)\s*$"
    r"|\\(?:cdot|times|div|pm|mp|neq?|neg|lnot|not\s*(?:=|\\[a-z]+)?|sqrt(?:\[[^][]*\])?|frac(?:\{[^{}]*\})?|log|ln|sin"
    r"|cos|tan|[bx]?cancel|sout|st|overline|phantom|hat|tilde|lfloor)\s*\{?\s*$",
    re.I,
)
_TOUCHES_AFTER = re.compile(
    r"\^(?!\s*\{?\s*\\(?:circ|text))|[_²³½]|!(?=[\w\\$])|[-+/:*]+\s*[\d\\]|[.,]?\d|\s*\\(?:cdot|times|div|pm|pi|sqrt|frac"
    r"|l?or|vee|land|wedge|cup)(?![a-z])|[a-z](?![A-Za-z])",
    re.I,
)
_WORDS_AFTER = re.compile(r"\s*[($]*\s*(?:\\text\s*\{\s*)?(?:or|million|billion|thousand|hundred|dozen)\b", re.I)


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
    answer_part = after if closed else before
    return None if "</think>" in after or "<think>" in answer_part else answer_part


def find_boxes(text: str) -> list[BoxedAnswer] | None:
    """Return the outermost boxes that are not empty, in order; None if the last one is never closed.

    >>> [found.content for found in find_boxes(r"\\boxed{1} in the \\boxed{} so \\boxed{\\frac{1}{2}}, \\boxed 5")]
    ['1', '\\\\frac{1}{2}', '5']
    >>> find_boxes(r"\\boxed{1} so \\boxed{2") is None
    True
    """
    open_stack: list[tuple[int, int] | None] = []
    closed: list[BoxedAnswer] = []
    for mark in _MARK.finditer(text):
        if mark[1]:
            open_stack.append((mark.start(), mark.end()))
        elif mark[2]:
            closed.append(BoxedAnswer(mark.start(), mark.end(), mark[2]))
        elif mark[3] == "{":
            open_stack.append(None)
        elif mark[3] == "}" and open_stack and (box := open_stack.pop()):
            while closed and closed[-1].start > box[0]:
                closed.pop()
            closed.append(BoxedAnswer(box[0], mark.end(), text[box[1] : mark.start()]))
    unclosed = max((start[0] for start in open_stack if start), default=-1)
    is_open = closed and unclosed > closed[-1].start
    return None if is_open else [box for box in closed if re.search(r"\w|\\\{", box.content)]


def final_answers(text: str, box: Box) -> list[str]:
    """Return the final answers of a text, all of which must be correct; none if there is none.

    Boxes with only signs, a name, "and" or "or" between them are one answer of several values. Without a box the last
    line is an answer if it is nothing else.

    >>> final_answers(r"Put it in \\boxed{}: x = \\boxed{1}, \\boxed{2}", "last"), final_answers("so\\nx = 4", "last")
    (['1, 2'], ['x = 4'])
    >>> final_answers(r"-\\boxed{4}", "last"), final_answers(r"it is not \\boxed{4}", "last")
    ([], [])
    """
    answer_part = after_thinking(text)
    if answer_part is None:
        return []
    answer_part = answer_part[-SEARCH_WINDOW:]
    all_boxes = find_boxes(answer_part)
    if all_boxes is None or (box == "only" and len(all_boxes) != 1):
        return []
    if not all_boxes:
        return [] if "\\boxed{" in answer_part and "\\boxed{}" not in answer_part else _without_box(answer_part, box)
    if box == "all":
        is_changed = any(_is_touched(answer_part, one.start, one.end) for one in all_boxes)
        return [] if is_changed else _unwrap([one.content for one in all_boxes])
    first = last = 0 if box == "first" else len(all_boxes) - 1
    while first > 0 and _are_joined(answer_part, *all_boxes[first - 1 : first + 1]):
        first -= 1
    while last + 1 < len(all_boxes) and _are_joined(answer_part, *all_boxes[last : last + 2]):
        last += 1
    parts = all_boxes[first : last + 1]
    if _is_touched(answer_part, parts[0].start, parts[-1].end):
        return []
    contents = _unwrap([one.content for one in parts])
    has_or = any(_OR.search(answer_part[one.end : two.start]) for one, two in pairwise(parts))
    return [(r" \text{ or } " if has_or else ", ").join(contents)] if contents else []


def _without_box(text: str, box: Box) -> list[str]:
    """Return the last line of a text without a box, or, if `box` is "number", its last number."""
    if box == "number":
        numbers = _NUMBER.findall(text)
        return [numbers[-1].rstrip(",")] if numbers else []
    line = text.rstrip().rpartition("\n")[2].strip(" *")
    is_alone = 0 < len(line) <= LONGEST_LINE and not _SENTENCE.search(line)
    return [line] if box == "last" and is_alone else []


def _are_joined(text: str, first: BoxedAnswer, second: BoxedAnswer) -> bool:
    between = text[first.end : second.start]
    plain = _MARKUP.sub(" ", _LIST_NUMBER.sub(" ", _NAME.sub("", between)))
    is_named = plain != between and "=" in between and not re.search(r"\w|[,;]", plain)
    is_joined = _JOINED.fullmatch(plain) is not None and not is_named
    return is_joined and strip_spaces(first.content) != strip_spaces(second.content)


def _is_touched(text: str, start: int, end: int) -> bool:
    """Return True if an operator, an exponent, a digit or a ``not`` touches the box ``text[start:end]``.

    In a formula a space is nothing; outside, ``- \\boxed{4}`` is an item of a list.
    """
    before = _PARAGRAPH.split(text[max(0, start - 500) : start])[-1]
    after = _PARAGRAPH.split(text[end : end + 200])[0]
    delimiters = _DELIMITERS.findall(before)
    dollars = sum("$" in each for each in delimiters)
    is_math = dollars % 2 == 1 or bool(delimiters and delimiters[-1] in ("\\(", "\\["))
    if (mark := _EMPHASIS.search(before)) and after.startswith(mark[1]):
        before, after = before[: mark.start()], after[len(mark[1]) :]
    left, right = re.sub(r"(?:\$+|\\[(\[])\s*$", "", before), re.sub(r"^\s*(?:\$+|\\[)\]])", "", after)
    if is_math and left == before:
        left = left.rstrip()
    if is_math and right == after:
        right = right.lstrip()
    return bool(_TOUCHES_BEFORE.search(left)) or any(rule.match(right) for rule in (_TOUCHES_AFTER, _WORDS_AFTER))


def _unwrap(contents: list[str]) -> list[str]:
    """Open boxes within boxes; return nothing if any box holds anything beside its inner box."""
    opened = []
    for content in contents:
        for _ in range(MAX_NESTING):
            inner = find_boxes(content)
            if inner == [] and "\\boxed" not in content and "\\fbox" not in content:
                break
            if not inner or _plain(content) != _plain(content[inner[0].start : inner[0].end]):
                return []
            content = inner[0].content
        opened.append(content)
    return [] if any("boxed" in content for content in opened) else opened


def _plain(text: str) -> str:
    return strip_spaces(normalize_latex(text))
