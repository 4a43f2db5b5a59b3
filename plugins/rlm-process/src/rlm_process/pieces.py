"""The text of single tokens, and where in it something ends."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any


def pieces(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """The text of each token; joined, the text of all of them.

    A character that is spelt by several tokens stands with the last of them; special tokens are silent. Each is read
    together with the one before, since some tokenizers drop the space in front of a text.
    """
    found: list[str] = []
    start = read = 0  # tokens from `start` on are decoded together; up to `read` their text is known
    for token in range(len(ids)):
        known = _text(ids[start:read], tokenizer)
        text = _text(ids[start : token + 1], tokenizer)
        whole = not text.endswith("\ufffd") or token + 1 == len(ids)
        found.append(text[len(known) :] if whole else "")
        if whole:
            start, read = read, token + 1
    return found


def _text(ids: Sequence[int], tokenizer: Any) -> str:
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def after(pattern: re.Pattern[str], said: Sequence[str]) -> list[int]:
    """The tokens that hold the last character of a match, counted from 1.

    >>> after(re.compile(";"), ["1", "+1;", "2", ";3"])
    [2, 4]
    """
    reached = list(accumulate(map(len, said)))
    return [bisect_left(reached, match.end()) + 1 for match in pattern.finditer("".join(said)) if match.end()]
