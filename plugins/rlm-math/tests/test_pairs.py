"""Pairs and completions with their scores: by principle, by part of the code, and hostile ones."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from rlm_math import math_accuracy
from rlm_math.comparison import MAX_REFERENCE

Row = tuple[str, str, float]

HANG = 120.0
"""A hang guard only: the timeout of one answer is 2.5 s, and a verifier that ignores it never returns."""


def box(content: str) -> str:
    return f"\\boxed{{{content}}}"


def rows_of(name: str) -> list[Row]:
    """Return the lines ``reference | answer | score`` of a file."""
    rows = []
    for line in Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines():
        if not line.startswith("# "):
            rest, expected = line.rsplit(" | ", 1)
            gold, text = rest.split(" | ", 1)
            rows.append((gold, text.replace("⏎", "\n"), float(expected)))
    return rows


def hostile() -> dict[str, Row]:
    """Return short adversarial completions, and long ones that cost time, by name."""
    lines = Path(__file__).with_name("adversarial.jsonl").read_text(encoding="utf-8").splitlines()
    short = map(json.loads, lines)
    up, down = ",".join(map(str, range(301))), ",".join(map(str, range(300, 0, -1)))
    long = {
        "fractions": ("1", box(r"\frac{1}{1+" * 200 + "1" + "}" * 200), 0.0),
        "digits": ("1", box("1" * 5000), 0.0),
        "digits_of_reference": ("1" * 5000, box("1" * 5000), 1.0),
        "more_digits_of_reference": ("1" * 400_000, box("1"), 0.0),
        "pluses": ("1", box("1+" * 5000 + "1"), 0.0),
        "long_text": ("1", "so 1 = 1 and $x$ then " * 50_000 + box("1"), 1.0),
        "equations": ("1", box("x=" * 500 + "1"), 0.0),
        "set": (rf"\{{{up}\}}", box(rf"\{{{down}\}}"), 0.0),
        "set_right": (rf"\{{0,{down}\}}", box(rf"\{{{up}\}}"), 1.0),
        "brackets": ("1", box("(" * 3000 + "1" + ")" * 3000), 0.0),
        "boxes": ("1", "\\boxed{" * 3000 + "1" + "}" * 3000, 0.0),
        "open_boxes": ("1", "\\boxed{" * 100_000, 0.0),
        "braces": ("1", "{" * 500_000 + "\\boxed{1}", 1.0),
        "megabytes": ("1", "x" * 3_000_000 + " \\boxed{1}", 1.0),
        "thinking": ("1", "<think>" + "x" * 3_000_000 + "\\boxed{1}", 0.0),
        "roots": ("1", box(r"\sqrt[3]{" * 30 + "2" + "}" * 30), 0.0),
        "sines": ("1", box("+".join(f"\\sin(x+{i})" for i in range(28))), 0.0),
        "wide_power": ("1", box("x^{1999}(x+1)^{1999}"), 0.0),
        "powers_of_powers": ("1", box("((2^{1000})^{1000})^{1000}"), 0.0),
        "tower": ("1", box("9^{9^9}"), 0.0),
        "product": ("1", box(r"\prod_{i=1}^{10^7} i"), 0.0),
        "scientific": ("1", box("1e999999999"), 0.0),
    }
    return {row["id"]: (row["gold"], row["completion"], float(row["expected"])) for row in short} | long


def wrong_scores(rows: list[Row]) -> list[tuple[Row, float | None]]:
    scores = math_accuracy([text for _, text, _ in rows], [gold for gold, _, _ in rows])
    return [(row, score) for row, score in zip(rows, scores, strict=True) if score != row[2]]


@pytest.mark.parametrize("name", ["pairs_of_principles.txt", "pairs_of_code.txt"])
def test_a_boxed_answer_gets_its_score(name: str) -> None:
    rows = rows_of(name)
    assert wrong_scores([(gold, box(answer), expected) for gold, answer, expected in rows]) == []
    assert {expected for _, _, expected in rows} == {0.0, 1.0}


def test_pairs_of_other_graders_agree_but_for_the_named_reasons() -> None:
    """The tests of Math-Verify, MARIO_EVAL, NeMo-Skills, MATH, lighteval and TRL; a disagreement has its reason."""
    lines = Path(__file__).with_name("pairs_of_peers.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    scores = math_accuracy([row["text"] for row in rows], [row["gold"] for row in rows], seconds=20)
    assert scores == [row.get("score", float(row["right"])) for row in rows]
    assert all(("reason" in row) == (score != row["right"]) for row, score in zip(rows, scores, strict=True))


def test_a_completion_gets_its_score() -> None:
    assert wrong_scores(rows_of("completions.txt")) == []


@pytest.mark.parametrize("name", hostile())
def test_a_hostile_completion_gets_its_score_in_time(name: str) -> None:
    start = time.monotonic()
    assert wrong_scores([hostile()[name]]) == []
    assert time.monotonic() - start < HANG


def test_reading_a_reference_takes_linear_time() -> None:
    def seconds(references: list[str]) -> float:
        start = time.process_time()
        math_accuracy([box("2")] * len(references), references)
        return time.process_time() - start

    seconds(["1"])
    assert seconds(["1" * 400_000, "x=" * 200_000, "(" * 400_000]) < 2.0
    repeated = ["$", "x,", r"\{x|x=,\in", "²", "{", r"\text{", "1 ", r"\frac{", "a=", r"\in Z"]
    assert seconds([(each * MAX_REFERENCE)[:MAX_REFERENCE] for each in repeated]) < 4.0


def test_an_answer_equals_itself() -> None:
    references = sorted({gold for gold, _, expected in rows_of("pairs_of_principles.txt") if expected})
    assert wrong_scores([(gold, box(gold), 1.0) for gold in references]) == []
