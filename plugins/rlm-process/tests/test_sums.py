"""Sums in lines: prompts, correct lines, and the split."""

from __future__ import annotations

import re

import pytest
from rlm_process.sums import right_lines, sums
from rlm_testing import conformance

from rlm_plugins.data.addition import Problem

test_world = conformance("rlm_environments", sums, knobs={"train_rows": 8, "test_rows": 4})
test_reward = conformance("rlm_rewards", right_lines, columns={"lines": [["12,13", "11,05"], ["09,08"]]})


def problems(prompt: str) -> list[Problem]:
    return [Problem(*map(int, pair)) for pair in re.findall(r"(\d+)\+(\d+)", prompt)]


def test_correct_lines_are_column_sums():
    environment_spec = sums(count=5, train_rows=50, test_rows=20)
    for row in (*environment_spec.train, *environment_spec.test):
        encode = problems(row["prompt"][0]["content"])
        assert len(encode) == len(row["lines"]) == 5
        for problem, line in zip(encode, row["lines"], strict=True):
            units, tens = map(int, line.split(","))
            assert units == problem.a % 10 + problem.b % 10
            assert 10 * tens + units % 10 == problem.a + problem.b
        assert row["demonstration"] == "\n".join(row["lines"])
    assert (
        right_lines(
            [row["demonstration"] for row in environment_spec.test], [row["lines"] for row in environment_spec.test]
        )
        == [1.0] * 20
    )


def test_carries_knob():
    bare, written = (
        sums(count=2, digits=3, train_rows=50, slip=0.5),
        sums(count=2, digits=3, train_rows=50, slip=0.5, carries=True),
    )
    for row, other in zip(bare.train, written.train, strict=True):
        assert re.sub(r"\d=", "", other["demonstration"]) == row["demonstration"]
        for line in other["lines"]:
            assert [carry for carry, _ in re.findall(r"(\d)=(\d)", line)] == [
                x[0] for x in re.findall(r"\d\d(?=,)", line)
            ]


def test_held_out_sums_are_not_in_training():
    environment_spec = sums(count=3, train_rows=300, test_rows=50)
    assert all(p.held_out for row in environment_spec.test for p in problems(row["prompt"][0]["content"]))
    assert not any(p.held_out for row in environment_spec.train for p in problems(row["prompt"][0]["content"]))


def test_slip_omits_carries_only():
    clean, sloppy = sums(train_rows=400, test_rows=0), sums(train_rows=400, test_rows=0, slip=0.5)
    lines = [
        (good, sloppy_line, int(good[:2]) > 9)
        for row, other in zip(clean.train, sloppy.train, strict=True)
        for good, sloppy_line in zip(row["lines"], other["demonstration"].split("\n"), strict=True)
    ]
    assert all(good == sloppy_line for good, sloppy_line, carries in lines if not carries)
    wrong = [good != sloppy_line for good, sloppy_line, carries in lines if carries]
    assert 0.4 < sum(wrong) / len(wrong) < 0.6


@pytest.mark.parametrize(
    ("sloppy_line", "right", "share"),
    [
        ("12,13\n11,05", 1.0, 1.0),
        ("11,05\n12,13", 0.0, 0.0),
        ("12,13", 0.0, 0.5),
        ("12,13\n11,05\n12,13", 0.0, 2 / 3),
        ("12,13\n11,05\n", 1.0, 1.0),
        ("\n12,13\n\n \n11,05", 1.0, 1.0),
        ("", 0.0, 0.0),
    ],
)
def test_right_lines(sloppy_line: str, right: float, share: float):
    gold = [["12,13", "11,05"]]
    assert right_lines([sloppy_line], gold) == [right]
    assert right_lines([sloppy_line], gold, pay="share") == pytest.approx([share])
