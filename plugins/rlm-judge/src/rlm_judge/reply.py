"""What a server sent, believed only as far as it is whole: the text of its answer, or why there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LARGEST = 4 * 2**20
"""Bytes of a reply that are read; what is longer is no chat completion."""

PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
"""Statuses that another attempt may get past."""
SHUT = frozenset({"status 401", "status 403", "status 404"})
"""Failures that everybody will meet: a wrong key, no such model, no such address."""


class Failed(Exception):
    """An attempt that brought no answer.

    Args:
        why: In a word or two; failures are counted by it.
        again: Whether another attempt makes sense.
        wait: Seconds the server asked for.
        detail: What the server said about it.

    Attributes:
        spent: Tokens read and written all the same.
    """

    spent: tuple[int, int] = (0, 0)

    def __init__(self, why: str, *, again: bool, wait: float | None = None, detail: str = "") -> None:
        self.why, self.again, self.wait, self.detail = why, again, wait, detail
        super().__init__(why)


@dataclass(frozen=True)
class Reply:
    """An answer as it came: its text, and the tokens the server counted (0 where it does not say)."""

    text: str
    tokens_in: int
    tokens_out: int


def read(body: bytes) -> Reply:
    """The answer in the body of a reply with status 200.

    Raises:
        Failed: It is none. What looks like a fault of the moment may be tried again; a refusal or a text cut off in
            its middle would come again.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise Failed("no JSON", again=True) from None
    if not isinstance(found, Mapping):
        raise Failed("wrong schema", again=True)
    if found.get("error"):
        raise Failed("error in the reply", again=True, detail=complaint(body))
    spent = _tokens(found, "prompt_tokens"), _tokens(found, "completion_tokens")
    try:
        return Reply(_text(found), *spent)
    except Failed as failed:
        failed.spent = spent
        raise


def _text(found: Mapping[str, Any]) -> str:
    """What the first choice says."""
    choices = found.get("choices")
    if choices == []:
        raise Failed("no choices", again=True)
    choice = choices[0] if isinstance(choices, list) else None
    message = choice.get("message") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or not isinstance(message, Mapping):
        raise Failed("wrong schema", again=True)
    if choice.get("finish_reason") == "length":
        raise Failed("cut off", again=False, detail="the answer reached max_tokens")
    if choice.get("finish_reason") == "content_filter" or message.get("refusal"):
        raise Failed("refused", again=False)
    text = message.get("content")
    if not isinstance(text, str) or not text.strip():
        raise Failed("empty answer", again=True)
    return text


def _tokens(found: Mapping[str, Any], name: str) -> int:
    usage = found.get("usage")
    count = usage.get(name) if isinstance(usage, Mapping) else 0
    return count if isinstance(count, int) and 0 <= count < 2**31 else 0


def complaint(body: bytes) -> str:
    """What the body of an error says, shortened."""
    try:
        said = json.loads(body)
        said = said.get("error", said.get("detail", said))
        said = said.get("message", said) if isinstance(said, Mapping) else said
    except (ValueError, RecursionError, AttributeError):
        said = body[:1000].decode("utf-8", "replace")
    return " ".join(str(said).split())[:200]
