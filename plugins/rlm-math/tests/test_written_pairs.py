"""Pairs that were written as attacks, in `written_pairs.txt`: reference | answer | score."""

from __future__ import annotations

from pathlib import Path

from rlm_math import math_accuracy

LINES = Path(__file__).with_name("written_pairs.txt").read_text(encoding="utf-8").splitlines()


def test_each_written_pair_gets_its_score() -> None:
    pairs = []
    for line in LINES:
        rest, expected = line.rsplit(" | ", 1)
        pairs.append((*rest.split(" | ", 1), float(expected)))
    scores = math_accuracy([f"\\boxed{{{answer}}}" for _, answer, _ in pairs], [gold for gold, _, _ in pairs])
    wrong = [(pair, score) for pair, score in zip(pairs, scores, strict=True) if score != pair[2]]
    assert wrong == []
    assert len(pairs) > 500
