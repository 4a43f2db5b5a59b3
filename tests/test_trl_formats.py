"""TRL's data set formats in recipes: plain and chat, files and streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import rlm_plugins as rlm
from rlm_plugins.errors import RlmError
from rlm_plugins.registry import Registry

QUESTION = {"role": "user", "content": "1+1="}
RIGHT, WRONG = {"role": "assistant", "content": "2"}, {"role": "assistant", "content": "3"}
SUPERVISED = {
    "messages": {"messages": [QUESTION, RIGHT]},
    "prompt-completion": {"prompt": "1+1=", "completion": "2"},
    "prompt-completion chat": {"prompt": [QUESTION], "completion": [RIGHT]},
    "demonstration chat": {"prompt": [QUESTION], "demonstration": [RIGHT]},
}
PAIRS = {
    "explicit": {"prompt": "1+1= ", "chosen": "2", "rejected": "3"},
    "explicit chat": {"prompt": [QUESTION], "chosen": [RIGHT], "rejected": [WRONG]},
    "implicit": {"chosen": "1 + 1 = 2", "rejected": "1 + 1 = 3"},
    "implicit chat": {"chosen": [QUESTION, RIGHT], "rejected": [QUESTION, WRONG]},
}


def spec(folder: Path, rows: list[dict[str, Any]], suffix: str = "jsonl", **knobs: Any) -> Any:
    """Return the environment of a file with these rows."""
    file = folder / f"data.{suffix}"
    if suffix == "parquet":
        from datasets import Dataset

        Dataset.from_list(rows).to_parquet(file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return Registry().find("rlm_environments", "dataset").bind({"path": str(file), **knobs}).call({})


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", SUPERVISED)
def test_supervised_rows_have_prompt_and_demonstration(tmp_path: Path, name: str, suffix: str) -> None:
    for row in (next(iter(spec(tmp_path, [SUPERVISED[name]] * 2, suffix, streaming=s).train)) for s in (False, True)):
        assert row["prompt"] == [QUESTION]
        assert row["demonstration"] in ("2", [RIGHT])


def test_preferences_without_a_prompt_share_their_beginning(tmp_path: Path) -> None:
    rows = {name: spec(tmp_path, [row], chat="chat" in name).train[0] for name, row in PAIRS.items()}
    assert rows["implicit"]["prompt"] == "1 + 1 ="
    assert (rows["implicit"]["chosen"], rows["implicit"]["rejected"]) == (" 2", " 3")
    chat = rows["implicit chat"]
    assert (chat["prompt"], chat["chosen"], chat["rejected"]) == ([QUESTION], [RIGHT], [WRONG])
    assert rows["explicit"]["prompt"] == "1+1= "


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"messages": [QUESTION, QUESTION]}, "end with a turn of the assistant"),
        ({"messages": [RIGHT]}, "end with a turn of the assistant"),
        ({"messages": []}, "to be messages"),
    ],
)
def test_an_unusable_row_is_named(tmp_path: Path, row: dict[str, Any], problem: str) -> None:
    with pytest.raises(RlmError, match=rf"row 1 \(counted from 0\): .*{problem}"):
        spec(tmp_path, [SUPERVISED["messages"], row])
    with pytest.raises(RlmError, match=r"row 1 .*expected `chosen` and `rejected` that differ"):
        spec(tmp_path, [PAIRS["implicit"], {"chosen": "1 2", "rejected": "1 2"}])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["messages", pytest.param("prompt-completion", marks=pytest.mark.full)])
def test_chat_demonstrations_train(tmp_path: Path, name: str) -> None:
    (tmp_path / "data.jsonl").write_text("".join(json.dumps(SUPERVISED[name]) + "\n" for _ in range(4)))
    run = rlm.train(
        {
            "model": {"name": "scratch", "hidden": 16, "heads": 2, "intermediate": 16},
            "environment": {"name": "dataset", "path": str(tmp_path / "data.jsonl")},
            "algorithm": "sft",
            "trainer": {"max_steps": 1, "per_device_train_batch_size": 2},
        },
        out=tmp_path / "run",
    )
    assert run.model()[0] is not None
