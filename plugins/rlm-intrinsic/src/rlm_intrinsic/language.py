"""r: the share of a thought that is written in one script (hook ``rlm_rewards``)."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def language_consistency(completions: Sequence[str], *, script: str = "LATIN", tag: str = "think") -> list[float]:
    """Return the share of the words of the thought that are written in `script`; 0 without words.

    r = words of the script / words of ``<tag>…</tag>``. A word belongs to it if the Unicode names of all its letters
    begin with it (LATIN, GREEK, CYRILLIC, CJK); text without letters is no word. DeepSeek-R1, arXiv 2501.12948 §2.3.2,
    counts the words of the target language, and adds this share to the accuracy.

    Pitfalls: two languages of one script are the same to it. A thought of one word is consistent.

    >>> language_consistency(["<think>two και three = 5</think>5", "<think>2 + 3</think>5", "5"])
    [0.6666666666666666, 0.0, 0.0]
    """
    shares = []
    for text in completions:
        thought = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        words = [letters for word in thought.split() if (letters := [c for c in word if c.isalpha()])]
        own = sum(all(unicodedata.name(c, "").startswith(script) for c in letters) for letters in words)
        shares.append(own / max(len(words), 1))
    return shares
