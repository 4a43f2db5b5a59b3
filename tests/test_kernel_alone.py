"""The core without any package: it trains `01-addition.yaml`, with TRL's passes and the decoding of transformers."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[1]
CUT = [
    "stages[0].model.hidden=32",
    "stages[0].trainer.max_steps=2",
    "stages[1].trainer.max_steps=2",
    "evaluation.rows=16",
]


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the command `rlm` of an environment with the core and all libraries, but no package of ours."""
    environment = tmp_path_factory.mktemp("kernel") / "environment"
    venv.create(environment, symlinks=True)
    (target,) = environment.glob("lib/python*/site-packages")
    for site in {Path(torch.__file__).parents[1], *(Path(each) for each in sys.path if each.endswith("site-packages"))}:
        for entry in site.iterdir():
            is_ours = "rlm_" in entry.name and not entry.name.startswith("rlm_plugins-")
            if not is_ours and entry.suffix != ".pth" and not (target / entry.name).exists():
                (target / entry.name).symlink_to(entry)
    (target / "kernel.pth").write_text(f"{ROOT}\n")
    return [str(environment / "bin" / "python"), "-m", "rlm_plugins"]


def rlm(kernel: list[str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "RLM_CACHE": str(Path(kernel[0]).parents[1] / "cache")}
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [*kernel, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_no_package_is_found(kernel: list[str]) -> None:
    script = "import importlib.metadata as m; print([p.name for p in m.entry_points(group='rlm')])"
    found = subprocess.run([kernel[0], "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
    assert importlib.metadata.entry_points(group="rlm"), "here there are packages"


def test_lesson_one_trains(kernel: list[str], tmp_path: Path) -> None:
    lesson = str(ROOT / "recipes/lessons/01-addition.yaml")
    shown = rlm(kernel, tmp_path, "train", lesson, *CUT, "--name", "alone")
    assert shown.returncode == 0, shown.stderr + shown.stdout
    lines = [json.loads(line) for line in (tmp_path / "runs/alone/metrics.jsonl").read_text().splitlines()]
    assert {line["stage"] for line in lines} == {"01-sft", "02-grpo"}
    assert (tmp_path / "runs/alone/02-grpo/adapter/adapter_model.safetensors").is_file()


@pytest.mark.full
def test_check_has_no_section_of_a_package(kernel: list[str], tmp_path: Path) -> None:
    shown = rlm(kernel, tmp_path, "check", str(ROOT / "recipes/lessons/01-addition.yaml"), *CUT, "--full")
    assert shown.returncode == 0, shown.stderr
    assert "transformers" in shown.stdout
    assert "\nspeed\n" not in shown.stdout
