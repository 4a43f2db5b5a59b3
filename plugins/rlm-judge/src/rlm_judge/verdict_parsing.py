"""Parsing of verdicts from a judge's answer. Anything ambiguous gives None: no verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

Value = TypeVar("Value")

_NUMBER = re.compile(r"[+-]?\d{1,9}(?:\.\d{1,9})?")
_BEFORE, _AFTER = " \t\r*_`\"'[(=", " \t\r*_`\"'.])"


def spoken_part(reply: str) -> str | None:
    """Return a judge's reply without its own thinking, which opens the reply; a later tag is a quotation.

    >>> spoken_part("<think>7</think> 3"), spoken_part("hm</think> 3"), spoken_part("it has <think>, so 3")
    (' 3', ' 3', 'it has <think>, so 3')
    >>> spoken_part(" <think>3") is None
    True
    """
    before, closed, after = reply.partition("</think>")
    if reply.lstrip().startswith("<think>"):
        return after if closed else None
    return after if closed and "<think>" not in before else reply


def _after_last_mark(answer_part: str, mark: str) -> str | None:
    if not mark:
        return answer_part
    places = list(re.finditer(rf"verdict-{re.escape(mark)}[*_`\"']*\s*[:=]", answer_part, re.IGNORECASE))
    return answer_part[places[-1].end() :] if places else None


def number(text: str, lowest: float, highest: float) -> float | None:
    """Parse a line that consists of one number between `lowest` and `highest`; None otherwise.

    >>> number(" **7** ", 1, 10), number("7/10", 1, 10), number("11", 1, 10), number("7 or 8", 1, 10)
    (7.0, 7.0, None, None)
    """
    line = re.sub(rf"[*_`]*\s*(?:/|out of)\s*{highest:g}$", "", _first_line(text))
    match = _NUMBER.fullmatch(line)
    value = float(match[0]) if match else None
    return value if value is not None and lowest <= value <= highest else None


def word(text: str, values: Mapping[str, Value]) -> Value | None:
    """Return the value of the word that the line consists of, in any case; None otherwise.

    >>> word(" [[A]]", {"A": 1.0}), word("A or B", {"A": 1.0}), word("Correct.", {"CORRECT": 1})
    (1.0, None, 1)
    """
    by_casefolded_name = {name.casefold(): value for name, value in values.items()}
    return by_casefolded_name.get(_first_line(text).casefold())


def items(text: str, names: Sequence[str]) -> list[float] | None:
    """Return the values, from 0 to 1, of a JSON object that has every one of `names`; text after it is ignored.

    A value is true or false, a number, or an object with such a value under ``met`` or ``score``.

    >>> items('```json\\n{"1": true, "2": {"why": "…", "met": false}}\\n``` I hope this helps', ["1", "2"])
    [1.0, 0.0]
    >>> items('{"1": true}', ["1", "2"]) is None, items('{"1": 7}', ["1"]) is None
    (True, True)
    """
    start = text.find("{")
    try:
        parsed, _ = json.JSONDecoder().raw_decode(text[start:]) if start >= 0 else (None, 0)
    except (ValueError, RecursionError):
        return None
    values = [_item(parsed.get(name)) for name in names] if isinstance(parsed, dict) else [None]
    valid = [value for value in values if value is not None]
    return valid if len(valid) == len(values) else None


def _item(value: Any) -> float | None:
    if isinstance(value, dict):
        value = value.get("met", value.get("score"))
    return float(value) if isinstance(value, bool | int | float) and 0 <= value <= 1 else None


def _first_line(text: str) -> str:
    """Return the first line with content, without surrounding markup."""
    stripped = (raw.lstrip(_BEFORE).rstrip(_AFTER) for raw in text.splitlines())
    return next((line for line in stripped if line), "")


def marked_parser(mark: str, read: Callable[[str], Value | None]) -> Callable[[str], Value | None]:
    """Return a parser that applies `read` to the text after the mark."""

    def verdict(answer: str) -> Value | None:
        spoken = spoken_part(answer)
        text = None if spoken is None else _after_last_mark(spoken, mark)
        return None if text is None else read(text)

    return verdict
