"""Text of single tokens, and the tokens in which matches of a pattern end."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any


def token_texts(ids: Sequence[int], tokenizer: Any) -> list[str]:
    """Return the text of each token; their concatenation is the text of all.

    A character of several tokens belongs to the last of them; special tokens are empty. Each token is decoded
    together with the one before, since some tokenizers drop a leading space.
    """
    texts: list[str] = []
    start = decoded_until = 0  # tokens from `start` on are decoded together; up to `read` their text is known
    for token in range(len(ids)):
        previous_text = _text(ids[start:decoded_until], tokenizer)
        text = _text(ids[start : token + 1], tokenizer)
        is_complete = not text.endswith("\ufffd") or token + 1 == len(ids)
        texts.append(text[len(previous_text) :] if is_complete else "")
        if is_complete:
            start, decoded_until = decoded_until, token + 1
    return texts


def _text(ids: Sequence[int], tokenizer: Any) -> str:
    text: str = tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
    return text


def match_ends(pattern: re.Pattern[str], texts: Sequence[str]) -> list[int]:
    """Return the tokens that contain the last character of a match, counted from 1.

    >>> match_ends(re.compile(";"), ["1", "+1;", "2", ";3"])
    [2, 4]
    """
    text_ends = list(accumulate(map(len, texts)))
    return [bisect_left(text_ends, match.end()) + 1 for match in pattern.finditer("".join(texts)) if match.end()]
