"""TRL's data set formats in recipes: plain and chat, files and streams."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

import rlm_plugins as rlm
from rlm_plugins.data.trl_formats import to_recipe_columns
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.checks.examples import check_content
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry

QUESTION = {"role": "user", "content": "1+1="}
RIGHT, WRONG = {"role": "assistant", "content": "2"}, {"role": "assistant", "content": "3"}
SUPERVISED = {
    "messages": {"messages": [QUESTION, RIGHT]},
    "ShareGPT": {"conversations": [{"from": "human", "value": "1+1="}, {"from": "gpt", "value": "2"}]},
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


def dataset_of(folder: Path, name: str, text: str, **knobs: Any) -> Any:
    """Return the environment of a file with this text."""
    (folder / name).write_text(text)
    return Registry().find("rlm_environments", "dataset").bind({"path": str(folder / name), **knobs}).call({})


def spec(folder: Path, rows: list[dict[str, Any]], suffix: str = "jsonl", **knobs: Any) -> Any:
    """Return the environment of a file with these rows."""
    file = folder / f"data.{suffix}"
    if suffix == "parquet":
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
    with pytest.raises(RlmError, match=rf"row 1 \(counted from 0\), line 2 of data.jsonl: .*{problem}"):
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


TRAINER = {"max_steps": 1, "per_device_train_batch_size": 2}
TEXT = [{"text": f"{i}+1={i + 1}"} for i in range(8)]
UNPAIRED = [{"prompt": f"{i // 2}+1=", "completion": str(i // 2 + 1 + i % 2), "label": i % 2 == 0} for i in range(16)]


def stage_on(folder: Path, rows: list[dict[str, Any]], algorithm: str, **knobs: Any) -> Any:
    """Return the composed stage of a recipe on a file with these rows."""
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    environment = {"name": "dataset", "path": str(file), **knobs}
    rewards = ["accuracy"] if algorithm == "grpo" else []
    recipe = rlm.load(
        {
            "model": "scratch",
            "environment": environment,
            "rewards": rewards,
            "algorithm": algorithm,
            "trainer": TRAINER | ({"num_generations": 2} if rewards else {}),
        }
    )
    return compose(recipe, Registry())[0]


@pytest.mark.parametrize("streaming", [False, True])
def test_text_is_the_demonstration_of_an_empty_prompt(tmp_path: Path, streaming: bool) -> None:
    row = next(iter(stage_on(tmp_path, TEXT, "sft", streaming=streaming).environment_spec.train))
    assert (row["prompt"], row["demonstration"]) == ("", "0+1=1")


def test_text_has_nothing_to_sample_from(tmp_path: Path) -> None:
    with pytest.raises(RlmError, match=r"(?s)empty prompt.*train `algorithm: sft` alone"):
        stage_on(tmp_path, TEXT, "grpo")


@pytest.mark.parametrize("streaming", [False, True])
def test_sft_takes_what_an_unpaired_preference_labels_true(tmp_path: Path, streaming: bool) -> None:
    rows = list(stage_on(tmp_path, UNPAIRED, "sft", streaming=streaming).environment_spec.train)
    assert [row["demonstration"] for row in rows] == [str(i + 1) for i in range(8)]


def test_a_reward_model_takes_every_pair_of_a_prompt(tmp_path: Path) -> None:
    more = [*UNPAIRED, {"prompt": "0+1=", "completion": "7", "label": False}]
    spec = stage_on(tmp_path, more, "reward_model", test_rows=3).environment_spec
    pairs = {(row["chosen"], row["rejected"]) for row in [*spec.train, *spec.test]}
    assert pairs == {(str(i + 1), str(i + 2)) for i in range(8)} | {("1", "7")}
    assert not {repr(row["prompt"]) for row in spec.train} & {repr(row["prompt"]) for row in spec.test}


def test_an_unpaired_preference_without_pairs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RlmError, match="no prompt has a completion labeled true and one labeled false"):
        stage_on(tmp_path, [row for row in UNPAIRED if row["label"]], "reward_model")
    with pytest.raises(RlmError, match=r"row 1 .*line 2 of rows.jsonl.*`label` to be true or false, got None"):
        stage_on(tmp_path, [UNPAIRED[0], UNPAIRED[0] | {"label": None}], "sft")


def test_sft_takes_the_preferred_completion(tmp_path: Path) -> None:
    rows = stage_on(tmp_path, [PAIRS["explicit"]] * 2, "sft").environment_spec.train
    assert rows[0]["demonstration"] == "2"


def test_training_and_held_out_examples_in_two_files(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n{"prompt": "5+1=", "answer": "6"}\n')
    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(4)]
    found = spec(tmp_path, rows, test_path=str(tmp_path / "test.jsonl"))
    assert [row["answer"] for row in found.test] == ["2", "6"]
    assert [row["answer"] for row in found.train] == ["1", "3", "4"], "a held-out prompt is not trained on"
    with pytest.raises(RlmError, match=r"dataset\.path: expected a string of at least one character"):
        spec(tmp_path, rows, path="")


def test_columns_are_renamed_before_the_format_is_read(tmp_path: Path) -> None:
    row = spec(tmp_path, [{"conversations": [QUESTION, RIGHT]}], columns={"messages": "conversations"}).train[0]
    assert (row["prompt"], row["demonstration"]) == ([QUESTION], [RIGHT])


@pytest.mark.parametrize(
    ("suffix", "text", "line"), [("csv", "prompt,answer\na,1\n\n,2\n", 4), ("tsv", "prompt\tx\n\t2\n", 2)]
)
def test_a_row_of_a_table_is_named_with_its_line(tmp_path: Path, suffix: str, text: str, line: int) -> None:
    with pytest.raises(RlmError, match=rf"line {line} of rows.{suffix}.*column 'prompt' is empty"):
        dataset_of(tmp_path, f"rows.{suffix}", text)


def test_errors_of_a_file_name_its_lines_columns_and_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(RlmError, match="cannot be read: line 3, column 16 is no JSON"):
        dataset_of(tmp_path, "broken.jsonl", '{"prompt": "a"}\n\n{"prompt": "b" 3}\n')
    with pytest.raises(
        RlmError, match=r"hint: `prompt: question`, or `columns: \{prompt: question, answer: solution\}`"
    ):
        dataset_of(tmp_path, "other.jsonl", '{"question": "a", "solution": "1"}\n')
    rows = [{"prompt": f"{i}+1=", "answer": "1"} for i in range(40)]
    rows[30]["prompt"] = rows[20]["prompt"]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    found = dataset_of(tmp_path, "rows.jsonl", text, test_rows=4, seed=1, chat=False)
    check_content(found, [], "dataset", "environment", generated=False)
    assert (
        "36 training examples of 'dataset' repeat a prompt and its answer: examples 30 (counted from 0)" in caplog.text
    )


def test_ranking_becomes_all_its_pairs() -> None:
    rows = Dataset.from_list([{"prompt": "p", "ranking": ["a", "b", "c"]}, {"prompt": "q", "ranking": ["d", "e"]}])
    found = [(row["prompt"], row["chosen"], row["rejected"]) for row in to_recipe_columns(rows)]
    assert found == [("p", "a", "b"), ("p", "a", "c"), ("p", "b", "c"), ("q", "d", "e")]
