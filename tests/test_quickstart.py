"""The claim of the README: the held-out accuracy after the quickstart.

The test is `make demo`. Other seeds for the weights, the data order and the sampling, and every other row from the same
start: `benchmarks/results/rows.md`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from launch_runs import LESSON, launch

pytestmark = [pytest.mark.slow, pytest.mark.full]


def test_grpo_learns_the_carry(tmp_path: Path) -> None:
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
