"""Completions in `completions.txt`: reference | completion (⏎ is a line break) | score."""

from __future__ import annotations

from pathlib import Path

from rlm_math import math_accuracy

LINES = Path(__file__).with_name("completions.txt").read_text(encoding="utf-8").splitlines()


def test_text_around_a_box_counts_where_it_changes_the_answer() -> None:
    rows = []
    for line in LINES:
        rest, expected = line.rsplit(" | ", 1)
        gold, completion = rest.split(" | ", 1)
        rows.append((gold, completion.replace("⏎", "\n"), float(expected)))
    scores = math_accuracy([completion for _, completion, _ in rows], [gold for gold, _, _ in rows])
    assert [(row, score) for row, score in zip(rows, scores, strict=True) if score != row[2]] == []
    assert {expected for _, _, expected in rows} == {0.0, 1.0}
