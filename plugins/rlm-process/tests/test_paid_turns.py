"""A function of somebody's, turn by turn."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rlm_process import per_turn

from rlm_plugins.builtin.models import scratch
from rlm_plugins.errors import PartError, RecipeError
from rlm_plugins.registry.parts import Part

TOKENIZER = scratch().tokenizer()
HEARD: list[Any] = []


def right(said: list[str], heard: list[str], answer: str) -> list[float | None]:
    """1 for a turn that says the answer; who says nothing is not judged."""
    HEARD.append((said, heard))
    return [float(text == answer) if text else None for text in said]


def one_too_few(said: list[str]) -> list[float]:
    return [1.0] * (len(said) - 1)


def paid(turns: list[list[tuple[str, bool]]], **knobs: Any) -> list[list[float]]:
    """Rows of texts, each the policy's (True) or not."""
    marked = [[(i, own) for text, own in row for i in TOKENIZER(text)["input_ids"]] for row in turns]
    width = max(map(len, marked))
    mask = torch.tensor([[own for _, own in row] + [False] * (width - len(row)) for row in marked])
    inputs = [{"answer": "12"}] * len(turns)
    found: list[list[float]] = per_turn(
        [[i for i, _ in row] for row in marked], mask, inputs, TOKENIZER, **{"by": f"{__file__}:right", **knobs}
    ).tolist()
    return found


def test_each_turn_is_paid_where_it_ends():
    rows = [
        [("3", True), ("=?", False), ("12", True), ("+", False)],
        [("+", False), ("12<|end|>", True)],
    ]
    assert paid(rows, weight=2.0) == [[0.0, 0.0, 0.0, 0.0, 2.0, 0.0], [0.0, 0.0, 0.0, 2.0, 0.0, 0.0]]
    heard = sys.modules[f"rlm_borrowed_{Path(__file__).stem}"].HEARD  # whoever borrows a file loads one of his own
    assert heard == [(["3", "12"], ["", "=?"]), (["12"], ["+"])]


def test_a_turn_that_is_not_judged_is_not_paid():
    assert paid([[("<|end|>", True), ("?", False), ("1", True)]]) == [[0.0, 0.0, 0.0]]


def test_it_must_say_something_of_every_turn():
    with pytest.raises(PartError, match="returned"):
        paid([[("3", True)]], by=f"{__file__}:one_too_few")


def test_a_function_that_is_not_there_is_refused_with_the_recipe():
    part = Part("rlm_shapers", "per_turn", "rlm_process", per_turn)
    with pytest.raises(RecipeError, match=r"shapers\.by"):
        part.bind({"by": "nowhere:nothing"}, where="shapers")
