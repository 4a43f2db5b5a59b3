"""Defects of data sets are named before weights are loaded: with the number of the example, over all examples."""

from __future__ import annotations

import gzip
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from hang_guard import hang_guard

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.document import load
from rlm_plugins.registry import Registry

RECIPE = """
model: {name: scratch, hidden: 16, heads: 2, layers: 1, intermediate: 16, max_positions: 64,
  characters: "0123456789+=? abc"}
environment: {name: dataset, path: rows.jsonl, chat: CHAT}
rewards: [accuracy]
algorithm: grpo
trainer: {per_device_train_batch_size: 4, num_generations: 2, max_completion_length: 8}
"""
GOOD = [{"prompt": f"{i}+1=?", "answer": str(i + 1)} for i in range(40)]


def rows(place: int = 39, **changes: Any) -> list[dict[str, Any]]:
    return [{**row, **changes} if number == place else row for number, row in enumerate(GOOD)]


def every(**changes: Any) -> list[dict[str, Any]]:
    return [{**row, **changes} for row in GOOD]


def chat(**message: Any) -> list[dict[str, Any]]:
    plain = [{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in GOOD]
    return [*plain[:-1], {**plain[-1], "prompt": [message]}]


NO_GOLD = ["", " ", "N/A", "n/a", "nan", "None", "null", "unknown", "TODO", "TBD", "?", "-", "...", "NA", "nil"]
REFUSED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a prompt of 65 tokens": (rows(prompt="1" * 65), "example 39 has 65 tokens, and the model has 64 positions"),
    "a prompt of 5 MB": (rows(prompt="1" * 5_000_000), "prompt 39 of the training examples .* has 5.0 million"),
    "prompt and completion": (rows(prompt="1" * 60), "has 60 tokens, and with a completion of 8 more than the 64"),
    "an empty prompt": (rows(prompt=""), "row 39 .* column 'prompt' is empty"),
    "null prompts": (every(prompt=None), "prompt"),
    "a role": (chat(role="robot", content="1+1=?"), "a message of the role 'robot'"),
    "an empty message": (chat(role="user", content=""), "prompt 39 .* has only empty messages"),
    "no rows": ([], "empty|no training examples|cannot be read"),
    "fewer rows than prompts": (GOOD[:1], "fewer than the 2 prompts of a generation"),
    "no prompt column": ([{"question": "1", "answer": "2"}] * 8, "unknown column 'prompt'"),
    "no answer column": ([{"prompt": r["prompt"]} for r in GOOD], "requires the column 'answer'"),
    **{
        f"answer {text!r} everywhere": (every(answer=text), "40 of 40 .* have no answer in the column")
        for text in NO_GOLD
    },
    **{
        f"answers {value!r} everywhere": (
            every(answer=value),
            "40 of 40 .* have no answer|pays its own reference answer nothing",
        )
        for value in ([], {"value": None}, ["", None], float("inf"))
    },
    "null answers": (every(answer=None), "40 of 40 .* have no answer"),
    "objects as answers": ([{**row, "answer": {"x": row["answer"]}} for row in GOOD], "40 of 40 .* have an object"),
    "blocks of content": (chat(role="user", content=[{"type": "text", "text": "1"}]), "39: the chat template cannot"),
    "a message without role": (chat(content="1"), "example 39 .* messages with `role` and `content`"),
    "a message of another format": (chat(**{"from": "human", "value": "1"}), "example 39 .* `role` and `content`"),
    "a mark of direction": (rows(prompt="\u202e1+1=?"), "no token for '.u202e'"),
    "a tenth without answer": ([*rows()[:36], *every(answer="N/A")[:4]], "4 of 40 .* have no answer .* 36, 37, 38, 39"),
    "two answers for all": ([*GOOD[:20], *every(answer="5")[:20]], "19 of 40 .* repeat a prompt with another answer"),
    **{
        f"prompt with {text!r}": (rows(prompt=f"1{text}1=?"), "the tokenizer has no token for")
        for text in ("x", "é", "√", "数", "\t", "𝑥", "½", "–", "*", "/", "(")
    },
    **{
        f"answer with {text!r}": (rows(answer=f"1{text}"), "the tokenizer has no token for")
        for text in ("x", ".", ",", "√", "½", "%", "\\", "{", "π", "-1")
    },
}
USER = {"role": "user", "content": "1+1=?"}
LATE = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": {"name": "f"}}]}
PLAIN = "".join(json.dumps(row) + "\n" for row in GOOD).encode()
FILES: dict[str, tuple[bytes, str]] = {
    "half a line": (PLAIN[:-20], "rows.jsonl"),
    "a line that is a list": (PLAIN + b"[1, 2]\n", "rows.jsonl"),
    "not UTF-8": (PLAIN.replace(b"39+1", b"\xff\xfe+1"), "rows.jsonl"),
    "UTF-16": (PLAIN.decode().encode("utf-16"), "rows.jsonl"),
    "no bytes": (b"", "it has no examples"),
    "a number too large": (PLAIN.replace(b'"answer": "1"', b'"answer": 1e400'), "Number too big"),
    "an answer twice": (PLAIN.replace(b'"answer"', b'"answer": "7", "answer"'), "specified twice"),
    "2000 levels": (PLAIN + b'{"prompt": "1", "answer": "1", "x": ' + b"[" * 2000 + b"]" * 2000 + b"}\n", "recursion"),
    "half a surrogate as answer": (PLAIN + b'{"prompt": "1", "answer": "\\ud800"}\n', "surrogate"),
    "columns in one object": (json.dumps({"prompt": ["1"], "answer": ["1"]}).encode(), "row 0 .* got list"),
    "a page": (b"<html>404</html>", "rows.jsonl"),
    "a call at the end": (
        b"".join(json.dumps({"prompt": [USER, *more], "answer": "2"}).encode() + b"\n" for more in ([], [LATE])),
        "example 1: the chat template cannot render",
    ),
    "half of a compressed file": (gzip.compress(PLAIN)[:-40], "rows.jsonl"),
    "a number as prompt": (PLAIN + b'{"prompt": 7, "answer": "2"}\n', "prompt|rows.jsonl"),
    "no prompt in one row": (PLAIN + b'{"answer": "2"}\n', "row 40 .*prompt"),
    "half a surrogate": (PLAIN + b'{"prompt": "1+1=\\ud800", "answer": "2"}\n', "rows.jsonl|token"),
    "a NUL": (PLAIN + b'{"prompt": "1+1=\\u0000", "answer": "2"}\n', "the tokenizer has no token for"),
}
"""Content of the file, and what is named."""
WARNED: dict[str, tuple[list[dict[str, Any]], str]] = {
    **{f"one answer {text!r}": (rows(answer=text), "1 of 40 .* no answer .* examples 39") for text in ("?", "", " ")},
    "a null answer": (rows(answer=None), "1 of 40 .* no answer"),
    "a duplicate": ([*GOOD, GOOD[0]], "1 of 41 .* repeat a prompt and its answer: examples 40"),
    "all duplicates": (GOOD[:1] * 40, "39 of 40 .* repeat a prompt and its answer"),
    "two answers": ([*GOOD, {**GOOD[0], "answer": "7"}], "1 of 41 .* repeat a prompt with another answer: examples 40"),
}


def checked(folder: Path, data: list[dict[str, Any]] | bytes, *overrides: str) -> None:
    written = data if isinstance(data, bytes) else "".join(json.dumps(row) + "\n" for row in data).encode()
    (folder / "rows.jsonl").write_bytes(written)
    is_chat = written.startswith(b'{"prompt": [{"role"')
    (folder / "r.yaml").write_text(RECIPE.replace("CHAT", str(is_chat).lower()), encoding="utf-8")
    path = f"environment.path={folder / 'rows.jsonl'}"
    with hang_guard():
        compose(load(folder / "r.yaml", [path, *overrides]), Registry())


QUICK = ("a prompt of 65 tokens", "a prompt of 5 MB", "null answers", "two answers for all", "prompt with '√'")


@pytest.mark.faults(group="F7")
def test_defects_of_data_are_named(tmp_path: Path, cases: Any) -> None:
    for number, name in enumerate(QUICK):
        (folder := tmp_path / str(number)).mkdir()
        with cases(name), pytest.raises(RecipeError, match=REFUSED[name][1]):
            checked(folder, REFUSED[name][0])


@pytest.mark.faults(group="F7")
def test_all_defects_of_data_are_named(tmp_path: Path, cases: Any, caplog: pytest.LogCaptureFixture) -> None:
    for number, (name, (data, words)) in enumerate((REFUSED | FILES).items()):
        (folder := tmp_path / str(number)).mkdir()
        with cases(name), pytest.raises(RecipeError, match=words):
            checked(folder, data)
    for number, (name, (data, words)) in enumerate(WARNED.items()):
        (folder := tmp_path / f"warned {number}").mkdir()
        caplog.clear()
        with cases(f"warning: {name}"), caplog.at_level(logging.WARNING):
            checked(folder, data)
            assert any(re.search(words, message) for message in caplog.messages), caplog.messages
    with cases("held out and trained on, in another spelling"), caplog.at_level(logging.WARNING):
        caplog.clear()
        (tmp_path / "test.jsonl").write_text(json.dumps({"prompt": " 3+1=? ", "answer": "4"}) + "\n")
        (folder := tmp_path / "overlap").mkdir()
        (folder / "rows-test.jsonl").write_text("")
        checked(folder, [*GOOD, {"prompt": " 3+1=? ", "answer": "4"}], "environment.test_rows=20")
        assert "are also training examples" in caplog.text


SOUND: dict[str, list[dict[str, Any]] | bytes] = {
    "plain": GOOD,
    "a mark of the byte order": b"\xef\xbb\xbf" + PLAIN,
    "lines of Windows": PLAIN.replace(b"\n", b"\r\n"),
    "empty lines": PLAIN.replace(b"\n", b"\n\n"),
    "an array": json.dumps(GOOD).encode(),
    "compressed under another name": gzip.compress(PLAIN),
    "numbers as answers": [{**row, "answer": number + 1} for number, row in enumerate(GOOD)],
    "nested columns": every(meta={"a": [{"b": 1}]}),
    "columns with odd names": every(**{"": 1, "a b": 2, "\n": 3, "self": 4, "class": 5}),
}


@pytest.mark.faults(group="F7")
def test_sound_data_are_silent(tmp_path: Path, cases: Any, caplog: pytest.LogCaptureFixture) -> None:
    for number, (name, data) in enumerate(SOUND.items()):
        (folder := tmp_path / str(number)).mkdir()
        caplog.clear()
        with cases(name), caplog.at_level(logging.WARNING):
            checked(folder, data)
            of_beartype = "changed the random numbers"  # which samples the entries of a reward's lists in tests alone
            assert [message for message in caplog.messages if of_beartype not in message] == []
