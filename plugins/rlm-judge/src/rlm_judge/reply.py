"""Validation of server replies: the answer's text, or the reason why there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
