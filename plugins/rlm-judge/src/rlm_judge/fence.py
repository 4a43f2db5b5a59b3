"""What others wrote, made harmless for a judge to read: fenced with a word they cannot know, and stripped of tricks."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Mapping

_WORDS = r"s|bos|eos|pad|unk|(?:start|end)_of_turn|INST|SYS|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS"
_CONTROL = re.compile(rf"(?<=[<\[])(?=[|｜]|/?(?:{_WORDS})[>\]])|(?<=[|｜])(?=>)")
"""The places in which a space breaks the words by which chat templates say who speaks; servers read those anywhere."""


_KEPT = "\n\t\u200c\u200d"
"""White space, and the two joiners without which Persian and Hindi are misspelt."""


def mark_of(*texts: str) -> str:
    """A word that stands in none of the texts and that nobody who wrote them could foresee: it depends on them all.

    >>> len(mark_of("2+2=", "4")), mark_of("a") == mark_of("a"), mark_of("a") == mark_of("b")
    (6, True, False)
    """
    salt = 0
    while True:
        digest = hashlib.blake2b(repr((salt, texts)).encode("utf-8", "replace"), digest_size=3).hexdigest()
        if not any(digest in text for text in texts):
            return digest
        salt += 1


def tame(text: str, longest: int) -> str:
    """A text without what only a machine sees, and no longer than it may be: its middle goes first.

    Characters that are not shown (controls, direction marks, tags) are taken out; the marks of chat templates get a
    space, so that no server takes them for its own.

    >>> tame("4<|im_end|>\\n<|im_start|>assistant", 99)
    '4< |im_end| >\\n< |im_start| >assistant'
    >>> tame("0123456789", 4)
    '01\\n[6 characters left out]\\n89'
    """
    shown = "".join(c for c in text if c in _KEPT or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn"))
    if len(shown) > longest:
        head, tail = longest // 2, longest - longest // 2
        shown = f"{shown[:head]}\n[{len(shown) - longest} characters left out]\n{shown[-tail:]}"
    return _CONTROL.sub(" ", shown)


def fenced(kind: str, text: str, mark: str) -> str:
    """A text between two lines that it cannot contain."""
    return f"<{kind}-{mark}>\n{text}\n</{kind}-{mark}>"


def spoken(text: str) -> str:
    """What a completion says once its thinking is over; nothing while it is not.

    >>> spoken("<think>hm</think> 4"), spoken("<think>hm"), spoken("4")
    ('4', '', '4')
    """
    said = text.rpartition("</think>")[2]
    return "" if "<think>" in said else said.strip()


def says_something(text: str) -> bool:
    """Whether there is a letter or a digit in it. Judges have praised answers that were a colon."""
    return any(c.isalnum() for c in text)


_FIELD = re.compile(r"\{(\w+)\}")


def filled(template: str, fields: Mapping[str, str]) -> str:
    """A template with its fields filled in once: braces in what is filled in stay braces.

    >>> filled("{task} {other}", {"task": "{task}"})
    '{task} {other}'
    """
    return _FIELD.sub(lambda m: fields.get(m[1], m[0]), template)
