"""Extraction of the program from a completion."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Literal

Block = Literal["last", "first", "only"]
Unfenced = Literal["wrong", "whole"]

_FENCE = re.compile(r"^[ \t]*(?:[-*+] +)?(```+|~~~+)[ \t]*([\w+.-]*)[^\n]*$", re.M)
_PYTHON = {"python", "py", "python3"}


def program(text: str, block: Block = "last", unfenced: Unfenced = "wrong") -> str | None:
    """Return the final program of a completion, after its thinking; None if there is none.

    An unclosed block was truncated: neither it nor any earlier block counts then.

    >>> program("<think>```python\\n1\\n```</think>so\\n```python\\nx = 2\\n```\\nit is")
    'x = 2\\n'
    >>> program("```\\nx = 1\\n```\\n```python\\nx = 2"), program("x = 1"), program("x = 1", unfenced="whole")
    (None, None, 'x = 1')
    """
    answer_part = after_thinking(text)
    if answer_part is None:
        return None
    blocks, all_closed = _blocks(answer_part)
    if not all_closed:
        return None
    if not blocks:
        return answer_part if unfenced == "whole" and not _FENCE.search(answer_part) and answer_part.strip() else None
    if block == "only" and len(blocks) > 1:
        return None
    return blocks[0 if block == "first" else -1]


def after_thinking(text: str) -> str | None:
    """Return the text after the thinking; None if the thinking is not closed.

    >>> after_thinking("<think>a</think>b"), after_thinking("b"), after_thinking("<think>a")
    ('b', 'b', None)
    """
    _, closed, after = text.rpartition("</think>")
    answer_part = after if closed else text
    return None if "<think>" in answer_part else answer_part


def _blocks(text: str) -> tuple[list[str], bool]:
    """Return the closed Python blocks of `text`, and True if the last block is closed.

    A fence closes with at least as many marks of its kind. A block without a language is Python if none is named so.
    """
    blocks: list[tuple[str, str]] = []
    opened: re.Match[str] | None = None
    for mark in _FENCE.finditer(text):
        if opened is None:
            opened = mark
        elif not mark[2] and mark[1].startswith(opened[1]):  # a fence with a language inside a block is part of it
            blocks.append((opened[2].lower(), dedent(text[opened.end() + 1 : mark.start()]).lstrip("\ufeff")))
            opened = None
    python = [source for language, source in blocks if language in _PYTHON]
    return python or [source for language, source in blocks if not language], opened is None
