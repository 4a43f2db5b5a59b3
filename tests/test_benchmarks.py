"""The benchmark of the rows, on a lesson of two steps: it measures every row once, and tells what it measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import row_report
import rows as benchmark
from row_settings import LEFT_OUT, NOTES, OWN

from rlm_plugins.registry import BUILTIN, Registry

LESSON = """
environment: {name: addition, digits: 2, train_rows: 32, test_rows: 4}
rewards: [accuracy, {name: format, weight: 0.2}]
evaluation: {metric: accuracy, every: 1, batch_size: 4, max_new_tokens: 4}
stages:
  - name: sft
    model: {name: scratch, layers: 1, hidden: 16, heads: 2, intermediate: 16}
    algorithm: sft
    trainer: {max_steps: 1, per_device_train_batch_size: 4, gradient_checkpointing: false, save_strategy: "no"}
  - name: grpo
    model: {lora: {r: 2, target_modules: all-linear}}
    algorithm: dapo
    trainer:
      max_steps: 9
      per_device_train_batch_size: 8
      num_generations: 4
      max_completion_length: 4
      learning_rate: 1e-3
      gradient_checkpointing: false
"""


def run(folder: Path, *more: str) -> list[dict[str, Any]]:
    (folder / "lesson.yaml").write_text(LESSON)
    where = ["--lesson", str(folder / "lesson.yaml"), "--out", str(folder / "out"), "--workers", "1"]
    assert benchmark.main([*where, "--steps", "1", *more]) == 0
    return benchmark.read(folder / "out")


def test_each_row_is_measured_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sft,) = run(tmp_path, "--rows", "sft", "--seeds", "0")
    with (tmp_path / "out/rows.jsonl").open("a") as file:
        file.write('{"row": "grpo", "se')  # killed while it wrote
    records = run(tmp_path, "--rows", "grpo,sft", "--seeds", "0", "1")
    assert [(r["row"], r["seed"]) for r in records] == [("sft", 0), ("sft", 1), ("grpo", 0), ("grpo", 1)]
    assert records[0] == sft, "what has been measured is not measured again"
    for record in records:
        assert record["held_out_rows"] == 4
        assert [step for step, _ in record["curve"]] == [0, 1]
        assert (record["before"], record["after"]) == (record["curve"][0][1], record["curve"][-1][1])
        assert 0 < record["length"] <= 4
        assert record["entropy"] > 1, "weights that hardly left their random start"
        assert record["seconds"] > 0
        assert record["stage"]["trainer"]["max_steps"] == 1
        assert record["stage"]["trainer"]["learning_rate"] == 1e-3
        assert record["stage"]["algorithm"]["name"] == record["row"]
        assert str(tmp_path) not in json.dumps(record), "the same on every machine"
    assert records[0]["stage"]["environment"]["slip"] == 0
    printed = capsys.readouterr().out
    table = (tmp_path / "out/rows.md").read_text()
    assert table in printed
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == ["sft", "grpo"]
    assert OWN["sft"].why in table
    assert (tmp_path / "out/rows.png").stat().st_size > 0


def test_other_settings_are_another_measurement(tmp_path: Path) -> None:
    (once,) = run(tmp_path, "--rows", "grpo", "--seeds", "0")
    (other,) = run(tmp_path, "--rows", "grpo", "--seeds", "0", "--set", "trainer.num_iterations=3")
    assert (once["stage"]["trainer"].get("num_iterations"), other["stage"]["trainer"]["num_iterations"]) == (None, 3)
    (again,) = run(tmp_path, "--rows", "grpo", "--seeds", "0")
    same = ("curve", "length", "entropy", "stage")
    assert [again[name] for name in same] == [once[name] for name in same], "earlier runs of the process leave no trace"


def test_a_row_that_fails_is_named_and_stops_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lesson.yaml").write_text(LESSON)
    where = ["--lesson", str(tmp_path / "lesson.yaml"), "--out", str(tmp_path / "out"), "--workers", "1"]
    assert benchmark.main([*where, "--steps", "1", "--seeds", "0", "--rows", "nonsense,grpo"]) == 1
    assert [record["row"] for record in benchmark.read(tmp_path / "out")] == ["grpo"]
    assert "failed: nonsense-0" in capsys.readouterr().err


def test_every_row_of_the_registry_is_measured_or_left_out_for_a_reason() -> None:
    known = [p.name for p in Registry() if p.hook == "rlm_algorithms" and p.plugin == BUILTIN and "@" not in p.name]
    assert benchmark.rows_of(Registry()) == [name for name in known if name not in LEFT_OUT]
    for name in (*OWN, *LEFT_OUT, *NOTES):
        assert name in known, name


def test_the_table_tells_means_over_seeds() -> None:
    figures = {"before": 0.25, "length": 30.0, "entropy": 0.5}
    first = {**figures, "after": 0.9, "seconds": 10.0, "curve": [[0, 0.25], [2, 0.7], [4, 1.0], [5, 0.9]]}
    second = {**figures, "after": 1.0, "seconds": 13.0, "curve": [[0, 0.25], [2, 1.0], [4, 0.8], [5, 1.0]]}
    line = row_report.table({"grpo": [first, second]}).splitlines()[-1]
    assert line == "| `grpo` | 0.250 → 0.950 | 0.900 · 1.000 | 4 | 30.0 | 0.500 | 12 |"
    never = row_report.table({"grpo": [{**first, "curve": [[0, 0.25], [2, 0.5]]}]}).splitlines()[-1]
    assert never.split(" | ")[3] == "–"
