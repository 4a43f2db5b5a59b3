"""What a judge's answer comes to. Whatever is not plainly a verdict is None: no verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

Value = TypeVar("Value")

_NUMBER = re.compile(r"[+-]?\d{1,9}(?:\.\d{1,9})?")
_BEFORE, _BEHIND = " \t\r*_`\"'[(=", " \t\r*_`\"'.])"


def after(answer: str, mark: str) -> str | None:
    """What stands behind the last ``Verdict-mark:`` of an answer whose thinking is over; the whole without a mark.

    >>> after("He wants Verdict: 10. Verdict-1f: 2", "1f")
    ' 2'
    >>> after("<think>Verdict-1f: 2", "1f") is None
    True
    """
    said = answer.rpartition("</think>")[2]
    if "<think>" in said:
        return None
    if not mark:
        return said
    places = list(re.finditer(rf"verdict-{re.escape(mark)}[*_`\"']*\s*[:=]", said, re.IGNORECASE))
    return said[places[-1].end() :] if places else None


def number(text: str, lowest: float, highest: float) -> float | None:
    """The number that a line begins with and has nothing else beside it, between `lowest` and `highest`.

    >>> number(" **7** ", 1, 10), number("7/10", 1, 10), number("11", 1, 10), number("7 or 8", 1, 10)
    (7.0, 7.0, None, None)
    """
    line = re.sub(rf"[*_`]*\s*(?:/|out of)\s*{highest:g}$", "", _line(text))
    found = _NUMBER.fullmatch(line)
    value = float(found[0]) if found else None
    return value if value is not None and lowest <= value <= highest else None


def word(text: str, values: Mapping[str, Value]) -> Value | None:
    """The value of the word that a line consists of, in any case.

    >>> word(" [[A]]", {"A": 1.0}), word("A or B", {"A": 1.0}), word("Correct.", {"CORRECT": 1})
    (1.0, None, 1)
    """
    known = {name.casefold(): value for name, value in values.items()}
    return known.get(_line(text).casefold())


def items(text: str, names: Sequence[str]) -> list[float] | None:
    """The values, from 0 to 1, of a JSON object that has every one of `names`; what stands behind it is overlooked.

    A value is true or false, a number, or an object with such a value under ``met`` or ``score``.

    >>> items('```json\\n{"1": true, "2": {"why": "…", "met": false}}\\n``` I hope this helps', ["1", "2"])
    [1.0, 0.0]
    >>> items('{"1": true}', ["1", "2"]) is None, items('{"1": 7}', ["1"]) is None
    (True, True)
    """
    start = text.find("{")
    try:
        found, _ = json.JSONDecoder().raw_decode(text[start:]) if start >= 0 else (None, 0)
    except (ValueError, RecursionError):
        return None
    values = [_item(found.get(name)) for name in names] if isinstance(found, dict) else [None]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


def _item(value: Any) -> float | None:
    if isinstance(value, dict):
        value = value.get("met", value.get("score"))
    return float(value) if isinstance(value, bool | int | float) and 0 <= value <= 1 else None


def _line(text: str) -> str:
    """The first line that says something, without what is around it."""
    return next((line for raw in text.splitlines() if (line := raw.lstrip(_BEFORE).rstrip(_BEHIND))), "")


def reader(mark: str, read: Callable[[str], Value | None]) -> Callable[[str], Value | None]:
    """`read` of what stands behind the mark."""

    def verdict(answer: str) -> Value | None:
        text = after(answer, mark)
        return None if text is None else read(text)

    return verdict
