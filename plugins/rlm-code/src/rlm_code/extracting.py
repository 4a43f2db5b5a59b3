"""Where in a completion the program stands."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Literal

Block = Literal["last", "first", "only"]
Unfenced = Literal["wrong", "whole"]

_FENCE = re.compile(r"^[ \t]*```[ \t]*([\w+.-]*)[^\n]*$", re.M)
_PYTHON = {"", "python", "py", "python3"}


def program(text: str, block: Block = "last", unfenced: Unfenced = "wrong") -> str | None:
    """The program a completion commits to, after its thinking; None when there is none.

    A block that is never closed was cut off: nothing after it counts, and it does not either.

    >>> program("<think>```python\\n1\\n```</think>so\\n```python\\nx = 2\\n```\\nit is")
    'x = 2\\n'
    >>> program("```\\nx = 1\\n```\\n```python\\nx = 2"), program("x = 1"), program("x = 1", unfenced="whole")
    (None, None, 'x = 1')
    """
    said = spoken(text)
    if said is None:
        return None
    blocks, whole = _blocks(said)
    if not whole:
        return None
    if not blocks:
        return said if unfenced == "whole" and "```" not in said and said.strip() else None
    if block == "only" and len(blocks) > 1:
        return None
    return blocks[0 if block == "first" else -1]


def spoken(text: str) -> str | None:
    """What follows the thinking; None when it was never closed.

    >>> spoken("<think>a</think>b"), spoken("b"), spoken("<think>a")
    ('b', 'b', None)
    """
    _, closed, after = text.rpartition("</think>")
    said = after if closed else text
    return None if "<think>" in said else said


def _blocks(text: str) -> tuple[list[str], bool]:
    """The closed Python blocks of `text`, and whether the last block is closed."""
    found: list[str] = []
    opened: tuple[int, str] | None = None
    for mark in _FENCE.finditer(text):
        if opened is None:
            opened = mark.end() + 1, mark[1].lower()
        elif not mark[1]:  # a fence with a language inside a block is part of it
            start, language = opened
            found += [dedent(text[start : mark.start()])] if language in _PYTHON else []
            opened = None
    return found, opened is None
