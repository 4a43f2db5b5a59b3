"""``rlm compare`` and ``rlm sweep``."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import tiny
import yaml
from rlm_lab.compare import compare, render
from rlm_lab.sweep import sweep

from rlm_plugins.errors import RlmError

RECIPE = yaml.safe_dump({**tiny.recipe(save_strategy="no"), "evaluation": {"max_new_tokens": 4}})


def write_run(folder: Path, rate: float, seed: int, after: float | None) -> Path:
    folder.mkdir()
    recipe = {"name": folder.name, "stages": [{"name": "grpo", "trainer": {"learning_rate": rate, "seed": seed}}]}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    if after is not None:
        summary: dict[str, Any] = {"metric": "accuracy", "before": 0.1, "after": after, "held_out_rows": 64}
        (folder / "summary.json").write_text(json.dumps({**summary, "interval": [after - 0.1, after + 0.1]}))
    return folder


def test_runs_are_compared_by_what_differs(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a", 1e-4, 1, 0.5), write_run(tmp_path / "b", 3e-4, 1, 0.8)]
    comparison = compare(runs)
    assert [run["settings"] for run in comparison["runs"]] == [
        {"stages.0.trainer.learning_rate": 1e-4},
        {"stages.0.trainer.learning_rate": 3e-4},
    ]
    assert "0.700–0.900" in render(comparison, 120)


def test_a_replaced_part_is_one_difference(tmp_path: Path) -> None:
    """Its knobs, which the other run lacks, are not listed; those of a part that both have are."""
    accuracy, tags = {"name": "accuracy", "weight": 1.0, "mode": None}, {"name": "format", "as": "tags", "weight": 0.1}
    bodies = {
        "a": {"rewards": [accuracy, tags], "algorithm": {"name": "grpo", "advantage": {"name": "x", "scale": 1}}},
        "b": {"rewards": [{**accuracy, "weight": 2.0}], "algorithm": {"name": "grpo", "advantage": {"name": "y"}}},
    }
    for name, body in bodies.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "recipe.yaml").write_text(yaml.safe_dump({"name": name, "stages": [{"name": name, **body}]}))
    comparison = compare([tmp_path / name for name in bodies])
    assert comparison["runs"][1]["settings"] == {
        "stages.0.rewards": "accuracy",
        "stages.0.rewards.accuracy.weight": 2.0,
        "stages.0.algorithm.advantage": "y",
    }
    for width in (30, 60, 90, len(str(tmp_path)) + 72):
        assert max(map(len, render(comparison, width).splitlines())) <= width


def test_seeds_form_a_group(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / f"{rate}-{seed}", rate, seed, rate + seed) for rate in (1.0, 2.0) for seed in (1, 2)]
    groups = compare(runs)["groups"]
    assert [(group["runs"], group["mean"], group["least"], group["largest"]) for group in groups] == [
        (2, 2.5, 2.0, 3.0),
        (2, 3.5, 3.0, 4.0),
    ]


def test_unfinished_run_has_no_score(tmp_path: Path) -> None:
    comparison = compare([write_run(tmp_path / "a", 1.0, 1, None)])
    assert comparison["runs"][0]["after"] is None
    assert "–" in render(comparison, 120)


@pytest.mark.full
def test_sweep_trains_each_combination_once(tmp_path: Path) -> None:
    recipe, lines = tmp_path / "recipe.yaml", list[str]()
    recipe.write_text(RECIPE.replace("test_rows: 0", "test_rows: 2"))
    changes = ["trainer.learning_rate=1e-3,1e-2"]
    folders = sweep(recipe, changes, 1, tmp_path / "out", lines.append)
    assert [folder.name for folder in folders] == ["learning_rate=1e-3,seed=1", "learning_rate=1e-2,seed=1"]
    assert sweep(recipe, changes, 1, tmp_path / "out", lines.append) == folders
    assert sum("skipped" in line for line in lines) == 2
    assert all(run["after"] is not None for run in compare(folders)["runs"])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the signal of a parent's death is Linux's")
def test_killed_sweep_leaves_no_run_behind(tmp_path: Path) -> None:
    """Otherwise its process continues, and a repeated sweep trains beside it into a second folder."""
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("max_steps: 1\n", "max_steps: 100000\n"))
    program = "import sys; from pathlib import Path; from rlm_lab.sweep import sweep; "
    program += "sweep(Path(sys.argv[1]), ['trainer.seed=1'], 1, Path(sys.argv[2]))"
    options: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = subprocess.Popen([sys.executable, "-c", program, str(recipe), str(tmp_path / "out")], **options)
    children = Path(f"/proc/{started.pid}/task/{started.pid}/children")
    deadline = time.monotonic() + 120
    while not (found := children.read_text().split()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    started.kill()
    started.wait()
    child = Path(f"/proc/{found[0]}/stat")
    while child.exists() and child.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline, "the run goes on"
        time.sleep(0.1)


def test_invalid_combination_trains_nothing(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE)
    with pytest.raises(RlmError, match="expected key=value"):
        sweep(recipe, ["trainer.learning_rate"], 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()
