"""Parsing of a server's reply and of the verdict in a judge's answer. Anything ambiguous gives no verdict."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

MAX_BYTES = 4 * 2**20
"""Largest size of a reply in bytes; a longer one is not a chat completion."""

TRANSIENT_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""Statuses after which a retry may succeed."""
PERMANENT_FAILURES = frozenset({"status 401", "status 403", "status 404"})
"""Failures of every request: a wrong key, an unknown model, an unknown address."""


class RequestFailed(Exception):
    """An attempt without an answer.

    Args:
        why: A word or two, by which failures are counted.
        retryable: Whether another attempt may succeed.
        wait: Seconds that the server requested.
        detail: The server's message.

    Attributes:
        spent: Tokens read and generated nevertheless.
    """

    spent: tuple[int, int] = (0, 0)

    def __init__(self, why: str, *, retryable: bool, wait: float | None = None, detail: str = "") -> None:
        self.why, self.retryable, self.wait, self.detail = why, retryable, wait, detail
        super().__init__(why)


@dataclass(frozen=True)
class Reply:
    """A received answer: its text, and the token counts of the server (0 if missing)."""

    text: str
    tokens_in: int
    tokens_out: int


def read(body: bytes) -> Reply:
    """Return the answer in the body of a reply with status 200.

    Raises:
        RequestFailed: There is none. Transient faults are retryable; a refusal or a truncated answer would repeat.
    """
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestFailed("no JSON", retryable=True) from None
    if not isinstance(parsed, Mapping):
        raise RequestFailed("wrong schema", retryable=True)
    if parsed.get("error"):
        raise RequestFailed("error in the reply", retryable=True, detail=error_detail(body))
    spent = _token_count(parsed, "prompt_tokens"), _token_count(parsed, "completion_tokens")
    try:
        return Reply(_text(parsed), *spent)
    except RequestFailed as failed:
        failed.spent = spent
        raise


def _text(parsed: Mapping[str, Any]) -> str:
    """Return the text of the first choice."""
    choices = parsed.get("choices")
    if choices == []:
        raise RequestFailed("no choices", retryable=True)
    choice = choices[0] if isinstance(choices, list) else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise RequestFailed("wrong schema", retryable=True)
    if choice.get("finish_reason") == "length":
        raise RequestFailed("cut off", retryable=False, detail="the answer reached max_tokens")
    if choice.get("finish_reason") == "content_filter" or message.get("refusal"):
        raise RequestFailed("refused", retryable=False)
    text = message.get("content")
    if not isinstance(text, str) or not text.strip():
        raise RequestFailed("empty answer", retryable=True)
    return text


def _token_count(parsed: Mapping[str, Any], name: str) -> int:
    usage = parsed.get("usage")
    count = usage.get(name) if isinstance(usage, Mapping) else 0
    return count if isinstance(count, int) and 0 <= count < 2**31 else 0


def error_detail(body: bytes) -> str:
    """Return the message in the body of an error, shortened."""
    try:
        message = json.loads(body)
        message = message.get("error", message.get("detail", message))
        message = message.get("message", message) if isinstance(message, Mapping) else message
    except (ValueError, RecursionError, AttributeError):
        message = body[:1000].decode("utf-8", "replace")
    return " ".join(str(message).split())[:200]


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
