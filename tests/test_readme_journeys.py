"""The three journeys of the README, executed as written, and the held-out accuracy after the quickstart."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import Result
from launch_runs import LESSON, ROOT, launch
from typer.testing import CliRunner

from rlm_plugins.cli import app

SHORT = ("stages.0.trainer.max_steps=20", "stages.1.trainer.max_steps=2", "evaluation.rows=16")
SHORT_STAGES = (*SHORT, "stages.0.evaluation.rows=16")


def rlm(*arguments: str) -> Result:
    """Run a command in this process, which is faster than a new one; the first journey starts a process."""
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})


@pytest.mark.slow
def test_journey_one_third_party_reward(tmp_path: Path) -> None:
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]
    subprocess.run([*install, str(site), str(ROOT / "plugins" / "rlm-example")], check=True, timeout=300)
    recipe = yaml.safe_load(LESSON.read_text())
    recipe["rewards"].append({"name": "brevity", "weight": 0.1})  # the one line
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "rlm_plugins", "train", "recipe.yaml", "--out", "run", *SHORT_STAGES]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr[-3000:]
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert "rlm-example" in json.dumps(manifest["version"])
    sample = json.loads((tmp_path / "run" / "samples.jsonl").read_text().splitlines()[0])
    assert sample["shares"]["brevity"] == pytest.approx(0.1 * sample["rewards"]["brevity"])


FROM_NOTHING = """
model: {name: scratch, hidden: 32}
environment: {name: addition, digits: 2}
rewards: [accuracy]
algorithm: grpo
trainer: {max_steps: 1, per_device_train_batch_size: 8, num_generations: 4, max_completion_length: 8}
"""


@pytest.mark.slow
def test_second_journey_writes_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(FROM_NOTHING)
    schema = rlm("explain", "--schema", "schema.json")
    assert schema.exit_code == 0, schema.output
    assert "accuracy" in (tmp_path / "schema.json").read_text(), "an editor completes names of rewards from this"
    assert rlm("check", "mine.yaml").exit_code == 0
    result = rlm("train", "mine.yaml")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "runs" / "mine" / "summary.json").exists()


@pytest.mark.slow
def test_third_a_new_variant_in_a_file(tmp_path: Path) -> None:
    part, folder = tmp_path / "median.py", tmp_path / "run"
    (code,) = re.findall(r"```python\n([^`]*def median_baseline.*?)```", (ROOT / "README.md").read_text(), re.S)
    part.write_text(code)
    assert len([line for line in code.splitlines() if line.strip()]) <= 15, "the journey promises a short file"
    lesson = shutil.copy(LESSON, tmp_path)
    variant = ["stages.1.algorithm={name: grpo, advantage: './median.py:median_baseline'}"]
    result = rlm("train", str(lesson), "--trust", "--out", str(folder), *SHORT_STAGES, *variant)
    assert result.exit_code == 0, result.output
    document = yaml.safe_load((folder / "recipe.yaml").read_text())
    assert "median" in json.dumps(document)
    again = rlm("check", str(folder / "recipe.yaml"), "--trust")
    assert again.exit_code == 0, again.output


@pytest.mark.slow
def test_quickstart_learns_the_carry(tmp_path: Path) -> None:
    """The claim of the README, which is `make demo`; `benchmarks/results/rows.md` has other seeds and rows."""
    folder = launch(LESSON, tmp_path / "run", 1)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["held_out_rows"] == 256
    assert summary["before"] <= 0.45
    assert summary["after"] >= 0.90
    assert summary["interval"][0] > 0.85
    example = summary["example"]
    assert example["before"] != example["after"]
    for name in ("recipe.yaml", "manifest.json", "metrics.jsonl", "samples.jsonl", "curve.png"):
        assert (folder / name).stat().st_size > 0, name
    assert (folder / "02-grpo" / "adapter" / "adapter_model.safetensors").exists()
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    assert all(s["reward"] == pytest.approx(sum(s["shares"].values())) for s in samples)
    held_out = [line for line in (folder / "metrics.jsonl").read_text().splitlines() if "held_out/accuracy" in line]
    assert len(held_out) >= 7
