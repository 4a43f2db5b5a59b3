"""Extraction of the final program of a completion."""

from __future__ import annotations

import pytest
from rlm_code.reward import Block, Unfenced, program

ONE, TWO = "```python\nx = 1\n```", "```py\nx = 2\n```"


@pytest.mark.parametrize(
    ("text", "block", "unfenced", "found"),
    [
        (ONE, "last", "wrong", "x = 1\n"),
        (f"{ONE}\nbetter:\n{TWO}", "last", "wrong", "x = 2\n"),
        (f"{ONE}\nbetter:\n{TWO}", "first", "wrong", "x = 1\n"),
        (f"{ONE}\nbetter:\n{TWO}", "only", "wrong", None),
        (f"{ONE}\n```python\nx = ", "last", "wrong", None),
        ("```python\nx = 1", "last", "whole", None),
        ("````python\n'''\n```\n```\n'''\n````", "last", "wrong", "'''\n```\n```\n'''\n"),
        ("- ```python\n  x = 1\n  ```", "last", "wrong", "x = 1\n"),
        ("x = 1", "last", "wrong", None),
        ("x = 1", "last", "whole", "x = 1"),
        (f"<think>{ONE}</think>{TWO}", "last", "wrong", "x = 2\n"),
        (f"<think>{ONE}", "last", "wrong", None),
        (f"thought{ONE}</think>{TWO}", "last", "wrong", "x = 2\n"),
    ],
)
def test_program_extraction(text: str, block: Block, unfenced: Unfenced, found: str | None) -> None:
    assert program(text, block, unfenced) == found
