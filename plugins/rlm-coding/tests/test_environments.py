"""Data sets: local files in each preset's format are parsed, checked and split."""

# ruff: noqa: E501  (rows of data sets, as they are)
from __future__ import annotations

import atexit
import base64
import json
import os
import pickle
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from rlm_coding import code_tests
from rlm_coding.cases import BadTests
from rlm_coding.environments import ENVIRONMENTS, INSTRUCTION, unpack_cases
from rlm_coding.toy_programs import code_drills
from rlm_testing import conformance

from rlm_plugins.errors import RecipeError


def packed(cases: list[dict[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


SHAPES = json.loads(Path(__file__).with_name("data_set_rows.json").read_text(encoding="utf-8"))
"""Rows as each data set has them, and programs that pass and fail their tests."""
MBPP, KODCODE, HUMAN_EVAL, LIVE = (
    SHAPES[name]["rows"][0] for name in ("mbpp", "kodcode", "human_eval", "livecodebench")
)


def write_table(folder: Path, rows: list[dict[str, Any]]) -> str:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.mark.parametrize("name", list(ENVIRONMENTS))
def test_preset_parses_its_format(name: str, tmp_path: Path) -> None:
    rows, right, wrong = SHAPES[name].values()
    environment_spec = ENVIRONMENTS[name](path=write_table(tmp_path, rows))
    assert len(environment_spec.train) == len(rows)
    (message,) = environment_spec.train[0]["prompt"]
    assert message["content"].endswith(INSTRUCTION)
    tests = [row["tests"] for row in environment_spec.train]
    for programs, score in ((right, 1.0), (wrong, 0.0)):
        texts = [f"```python\n{source}\n```" for source in programs]
        assert code_tests(texts, tests, seconds=60.0) == [score] * len(rows), score


def test_sanitized_mbpp_format(tmp_path: Path) -> None:
    row = {
        "prompt": MBPP["text"],
        "code": MBPP["code"],
        "test_list": MBPP["test_list"],
        "test_imports": ["import math"],
    }
    environment_spec = ENVIRONMENTS["mbpp"](path=write_table(tmp_path, [row]))
    assert "assert math.isclose(area(1), math.pi)" in environment_spec.train[0]["prompt"][0]["content"]


TABLE = [{"problem": f"Write {n}.", "tests": {"stdin": [["", str(n)]]}, "solution": f"print({n})"} for n in range(20)]


@pytest.mark.parametrize(
    ("name", "row", "error_text"),
    [
        ("code_table", {"problem": "Broken.", "tests": {"stdin": []}}, "row 1: there are no cases"),
        ("code_table", {"problem": "Wrong.", "tests": {"stdin": [["", "2"]]}, "solution": "print(3)"}, r"fails its tests in row 1 \(wrong\)"),
        ("mbpp", {**MBPP, "text": "Other.", "test_list": ["assert area("]}, "row 1: the test is not Python"),
        ("kodcode", {**KODCODE, "question": "Other.", "test": "from solution import f"}, "row 1: there are no test functions"),
        ("human_eval", {**HUMAN_EVAL, "prompt": HUMAN_EVAL["prompt"] + "    ", "test": "x = 1"}, "row 1: the test defines no check"),
        ("livecodebench", {**LIVE, "question_content": "Other.", "private_test_cases": "!!"}, "row 1: the private tests cannot be unpacked"),
    ],
)  # fmt: skip
def test_malformed_tests_are_an_error_naming_the_row(
    name: str, row: dict[str, Any], error_text: str, tmp_path: Path
) -> None:
    first = TABLE[0] if name == "code_table" else SHAPES[name]["rows"][0]
    with pytest.raises(RecipeError, match=error_text):
        ENVIRONMENTS[name](path=write_table(tmp_path, [first, row]), split="train")


def test_skip_removes_malformed_rows(tmp_path: Path) -> None:
    path = write_table(tmp_path, [*TABLE, {"problem": "Broken.", "tests": {"stdin": None}, "solution": ""}])
    assert len(ENVIRONMENTS["code_table"](path=path, skip=1, tried=0).train) == 20


def test_held_out_questions_are_not_in_training(tmp_path: Path) -> None:
    environment_spec = ENVIRONMENTS["code_table"](path=write_table(tmp_path, [*TABLE, *TABLE]), test_rows=5, tried=1)
    tested = {row["question"] for row in environment_spec.test}
    assert (len(environment_spec.train), len(tested)) == (15, 5)
    assert not tested & {row["question"] for row in environment_spec.train}


class Payload:
    def __reduce__(self) -> Any:
        return os.system, ("exit 3",)


def test_pickle_with_code_is_rejected() -> None:
    evil = base64.b64encode(zlib.compress(pickle.dumps(Payload()))).decode()
    with pytest.raises(BadTests, match="it requires the class"):
        unpack_cases(evil)
    assert unpack_cases(packed([{"input": "1"}])) == [{"input": "1"}]


def laws(name: str) -> Any:
    """Return the contract tests of a preset on a table in its format."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    knobs = {"path": write_table(folder, SHAPES[name]["rows"]), "split": "train", "tried": 0}
    return conformance("rlm_environments", ENVIRONMENTS[name], knobs=knobs)


test_laws_of_livecodebench = laws("livecodebench")
test_laws_of_code_table = laws("code_table")
test_laws_of_code_drills = conformance("rlm_environments", code_drills)


def test_slip_sets_the_error_rate_of_demonstrations() -> None:
    for slip, least, most in ((0.0, 1.0, 1.0), (0.5, 0.4, 0.65)):
        rows = code_drills(train_rows=60, slip=slip).train
        found = code_tests(
            [row["demonstration"] for row in rows], [row["tests"] for row in rows], unfenced="whole", seconds=60.0
        )
        assert least <= sum(score or 0.0 for score in found) / 60 <= most
