"""Data sets: local files in each preset's format are parsed, checked and split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rlm_math import math_accuracy
from rlm_math.environments import ENVIRONMENTS, INSTRUCTION, fraction_sums
from rlm_testing import conformance

from rlm_plugins.errors import RecipeError

SHAPES = json.loads(Path(__file__).with_name("data_set_rows.json").read_text(encoding="utf-8"))
"""Rows as each data set has them, and the problems and answers to be read."""


def write_table(folder: Path, rows: list[dict[str, Any]]) -> str:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.mark.parametrize("name", list(ENVIRONMENTS))
def test_preset_parses_its_format(name: str, tmp_path: Path) -> None:
    rows, expected = SHAPES[name]["rows"], SHAPES[name]["expected"]
    environment_spec = ENVIRONMENTS[name](path=write_table(tmp_path, rows))
    assert [[row["problem"], row["answer"]] for row in environment_spec.train] == expected
    (message,) = environment_spec.train[0]["prompt"]
    assert message == {"role": "user", "content": f"{expected[0][0]}\n\n{INSTRUCTION}"}
    boxed = [f"\\boxed{{{answer}}}" for _, answer in expected]
    assert math_accuracy(boxed, [answer for _, answer in expected]) == [1.0] * len(boxed)
    assert "generations" not in environment_spec.train[0]


@pytest.mark.parametrize(
    ("name", "trace"),
    [("deepmath", "It is one half."), ("limo", "It is 7."), ("open_math_reasoning", "<think>…</think> 7")],
)
def test_traces_are_demonstrations(name: str, trace: str, tmp_path: Path) -> None:
    (row,) = ENVIRONMENTS[name](path=write_table(tmp_path, SHAPES[name]["rows"])).train
    assert row["demonstration"] == trace
    assert "r1_solution_2" not in row


def test_processed_dapo_format(tmp_path: Path) -> None:
    environment_spec = ENVIRONMENTS["dapo_17k"](
        path=write_table(tmp_path, [{"prompt": "What is 17 + 17?", "solution": "34"}])
    )
    assert (environment_spec.train[0]["problem"], environment_spec.train[0]["answer"]) == ("What is 17 + 17?", "34")


TABLE = [{"problem": f"What is {n}/7?", "answer": f"\\frac{{{n}}}{{7}}"} for n in range(1, 40)]


def test_unparseable_answers_are_removed_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_table(tmp_path, [*TABLE, {"problem": "Broken?", "answer": r"\frac{1}{"}])
    assert len(ENVIRONMENTS["math_table"](path=path).train) == 39
    assert r"row 39: '\\frac{1}{'" in caplog.text
    assert len(ENVIRONMENTS["math_table"](path=path, check=False).train) == 40
    with pytest.raises(RecipeError, match="1 of 40 answers"):
        ENVIRONMENTS["math_table"](path=path, unreadable=0.0)


def test_held_out_problems_are_not_in_training(tmp_path: Path) -> None:
    environment_spec = ENVIRONMENTS["math_table"](path=write_table(tmp_path, [*TABLE, *TABLE]), test_rows=9)
    tested = {row["problem"] for row in environment_spec.test}
    assert (len(environment_spec.train), len(tested)) == (30, 9)
    assert not tested & {row["problem"] for row in environment_spec.train}


@pytest.mark.parametrize(
    ("row", "error_text"),
    [
        ({"question": "?", "answer": "1"}, "requires the column 'problem'"),
        ({"problem": "?", "answer": ""}, "has an answer"),
    ],
)
def test_other_formats_are_recipe_errors(row: dict[str, Any], error_text: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=error_text):
        ENVIRONMENTS["math_table"](path=write_table(tmp_path, [row]))


def test_path_is_required() -> None:
    with pytest.raises(RecipeError, match="expected a data set"):
        ENVIRONMENTS["math_table"]()


test_laws_of_fraction_sums = conformance("rlm_environments", fraction_sums)


def test_slip_sets_the_error_rate_of_demonstrations() -> None:
    for slip, least, most in ((0.0, 1.0, 1.0), (0.5, 0.4, 0.6)):
        rows = fraction_sums(train_rows=400, slip=slip).train
        scores = math_accuracy([row["demonstration"] for row in rows], [row["answer"] for row in rows])
        assert least <= sum(scores) / 400 <= most
