"""Every corpus of the table reads an example of its published format, from one local file."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from rlm_worlds.corpora import CORPORA, CORPUS_ENVIRONMENTS

from rlm_plugins.errors import RecipeError

ROWS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("published_rows.toml").read_text())


def test_each_corpus_has_a_row() -> None:
    assert [*ROWS] == [*CORPORA]


@pytest.mark.parametrize("name", [*CORPORA])
def test_row_of_the_published_shape_is_read(name: str, tmp_path: Path) -> None:
    """The file has no split; a repeated record and one with an empty question are left out."""
    expected, corpus = dict(ROWS[name]), CORPORA[name]
    row = expected.pop("row")
    (tmp_path / "rows.jsonl").write_text(f"{row}\n{row}\n")
    spec = CORPUS_ENVIRONMENTS[name](path=str(tmp_path / "rows.jsonl"))
    (actual,) = list(spec.train)
    assert {key: value for key, value in actual.items() if key != "prompt"} == expected
    assert actual["prompt"][-1]["content"] == expected["question"]
    assert {*expected} == {key for key in ("question", "answer", "demonstration") if getattr(corpus, key)}
    assert corpus.license in (CORPUS_ENVIRONMENTS[name].__doc__ or "")


@pytest.mark.parametrize("name", ["webshaper", "open_code_reasoning", "limr"])
@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet", "csv"])
def test_one_local_file_needs_no_split(name: str, suffix: str, tmp_path: Path) -> None:
    """A data set whose only split has another name, saved as one file of any kind, is read without `split`."""
    import datasets

    expected, corpus = ROWS[name], CORPORA[name]
    file = tmp_path / f"copy.{suffix}"
    row = json.loads(expected["row"])
    if suffix == "csv":
        row = {key: value for key, value in row.items() if isinstance(value, str)}
    table = datasets.Dataset.from_list([row])
    {"csv": table.to_csv, "parquet": table.to_parquet}.get(suffix, table.to_json)(str(file))
    (actual,) = list(CORPUS_ENVIRONMENTS[name](path=str(file)).train)
    assert actual["question"] == expected["question"]
    assert corpus.split in ("main", "split_0", "train")


@pytest.mark.parametrize("name", [name for name, corpus in CORPORA.items() if not corpus.path])
def test_corpus_that_is_not_on_the_hub_requires_a_file(name: str) -> None:
    with pytest.raises(RecipeError, match="empty `path`") as failure:
        CORPUS_ENVIRONMENTS[name]()
    assert failure.value.where == "environment.path"


def test_what_was_confirmed_is_said() -> None:
    places = {"hub id", "columns", "config", "split", "license"}
    for name, corpus in CORPORA.items():
        assert {*corpus.confirmed} <= places
        assert ("From memory" in (CORPUS_ENVIRONMENTS[name].__doc__ or "")) is not bool(corpus.confirmed)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "x"}, "KeyError: 'answer'"),
        ({"prompt": "x", "answer": None}, "no row"),
        ({"prompt": " ", "answer": "1"}, "no row"),
    ],
)
def test_other_shapes_are_named(row: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row) + "\n")
    with pytest.raises(RecipeError, match=message) as failure:
        CORPUS_ENVIRONMENTS["limr"](path=str(file))
    assert failure.value.where == "environment.path"
