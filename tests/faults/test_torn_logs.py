"""A log that a crash or a full disk left incomplete is repaired, and the run goes on."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from fault_cases import resume, run, unfinished, weights

from rlm_plugins.durable.files import JsonLines
from rlm_plugins.errors import RlmError

pytestmark = pytest.mark.faults(group="F3b")
LINES = [{"stage": "01-grpo", "step": step, "nested": {"text": "ä\u2028"}} for step in range(3)]


def log(folder: Path, warnings: list[str]) -> JsonLines:
    lines = JsonLines(folder / "metrics.jsonl", warnings.append)
    for line in LINES:
        lines.append(line)
    return JsonLines(lines.path, warnings.append)


def test_an_incomplete_last_line_is_removed_wherever_it_was_cut(tmp_path: Path, cases: Any) -> None:
    warnings: list[str] = []
    path = log(tmp_path, warnings).path
    data = path.read_bytes()
    last = data[:-1].rfind(b"\n") + 1
    for length in range(last, len(data)):
        with cases(f"cut to {length} bytes"):
            warnings.clear()
            path.write_bytes(data[:length])
            kept = LINES if length == len(data) - 1 else LINES[:2]
            assert JsonLines(path, warnings.append).records() == kept
            JsonLines(path, warnings.append).append({"new": 1})
            assert JsonLines(path, warnings.append).records() == [*kept, {"new": 1}]
            is_torn = last < length < len(data) - 1
            assert [f"{length - last} bytes" in line for line in warnings] == [True] * is_torn


DAMAGED = {
    "half a line, then a whole one": b'{"stage": "01-g{"stage": "01-grpo", "step": 1}',
    "zeros": bytes(40),
    "not UTF-8": b'{"stage": "\xff\xfe"}',
    "a list": b"[1, 2]",
    "a number": b"7",
    "empty": b"",
    "nested too deeply": b"[" * 100_000,
    "JSON with text after it": b'{"step": 1} x',
}


@pytest.mark.parametrize("line", DAMAGED.values(), ids=DAMAGED)
def test_damaged_line_is_reported_and_kept(tmp_path: Path, line: bytes) -> None:
    warnings: list[str] = []
    lines = log(tmp_path, warnings)
    first, *rest = lines.path.read_bytes().splitlines(keepends=True)
    lines.path.write_bytes(first + line + b"\n" + b"".join(rest))
    assert lines.records() == LINES
    assert lines.records() == LINES
    assert warnings == [f"{lines.path} line 2: expected a JSON object, the line is skipped"]
    lines.keep(lambda record: record["step"] < 2)
    assert lines.path.read_bytes() == first + line + b"\n" + rest[0]
    lines.append({"step": 9})
    assert lines.records()[-1] == {"step": 9}


def test_a_failed_write_leaves_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, write = log(tmp_path, []), os.write
    before = made.path.read_bytes()
    calls: list[int] = []

    def full(descriptor: int, data: bytes) -> int:
        calls.append(descriptor)
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:7])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RlmError, match=r"metrics\.jsonl: cannot be written: No space left"):
        made.append({"step": 3})
    assert made.path.read_bytes() == before


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("untouched")
    (tmp_path / "metrics.jsonl").symlink_to(tmp_path / "target")
    with pytest.raises(RlmError, match=r"metrics\.jsonl"):
        JsonLines(tmp_path / "metrics.jsonl").append({"step": 1})
    assert (tmp_path / "target").read_text() == "untouched"


@pytest.mark.slow
def test_a_run_with_torn_logs_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str], cases: Any) -> None:
    whole = run(tmp_path, "full")
    for file in ("metrics.jsonl", "samples.jsonl"):
        with cases(file):
            copy = unfinished(whole, tmp_path / "copy")
            shutil.rmtree(copy / "01-grpo" / "checkpoint-4")
            path = copy / file
            first, *lines = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(first + b'{"stage": "01-g\n' + b"".join(lines)[:-9])
            assert weights(resume(copy)) == weights(whole)
            warnings = capsys.readouterr().out
            assert "line 2: expected a JSON object" in warnings
            assert "the incomplete last line was removed" in warnings
            steps = [
                json.loads(line)["step"] for line in path.read_bytes().splitlines() if b"01-g\n" not in line + b"\n"
            ]
            assert steps == sorted(steps)
            assert {0, 3} <= set(steps)
        shutil.rmtree(tmp_path / "copy")
