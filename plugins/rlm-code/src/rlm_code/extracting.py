"""Extraction of the program from a completion."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Literal

Block = Literal["last", "first", "only"]
Unfenced = Literal["wrong", "whole"]

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+.-]*)[^\n]*$", re.M)
_PYTHON = {"", "python", "py", "python3"}


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
        return answer_part if unfenced == "whole" and "```" not in answer_part and answer_part.strip() else None
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
    """Return the closed Python blocks of `text`, and True if the last block is closed."""
    blocks: list[str] = []
    opened: tuple[int, str] | None = None
    for mark in _FENCE.finditer(text):
        if opened is None:
            opened = mark.end() + 1, mark[1].lower()
        elif not mark[1]:  # a fence with a language inside a block is part of it
            start, language = opened
            blocks += [dedent(text[start : mark.start()])] if language in _PYTHON else []
            opened = None
    return blocks, opened is None
