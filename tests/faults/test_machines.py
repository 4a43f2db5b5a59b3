"""The processor is part of the numbers: a resume on another one warns, and equal commands give equal weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fault_cases import recipe, weights
from fault_kinds import interrupted
from fault_points import start_child, status_of

from rlm_plugins.run.launch import launch

pytestmark = [pytest.mark.slow, pytest.mark.full, pytest.mark.faults(group="machines")]
FLAGS = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
LEVELS = ["default", *(level for level, flag in (("avx2", " avx2 "), ("avx512", " avx512vl ")) if flag in FLAGS)]
"""Values of `ATEN_CPU_CAPABILITY` that this processor has."""
if len(LEVELS) == 1:
    pytest.skip("needs a processor with AVX2", allow_module_level=True)


def rlm(level: str, *arguments: str) -> tuple[int, str]:
    """Run a command in a process of its own, on a processor with these instructions only."""
    limits = {"ATEN_CPU_CAPABILITY": level, "ONEDNN_MAX_CPU_ISA": "SSE41" if level == "default" else "AVX2"}
    command = [sys.executable, "-m", "rlm_plugins", *arguments]
    done = subprocess.run(command, env={**os.environ, **limits}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.matrix
def test_a_portable_run_has_the_same_bits_with_other_instructions(tmp_path: Path) -> None:
    file, whole = recipe(tmp_path, save_total_limit=9), tmp_path / "whole"
    status, output = rlm(LEVELS[-1], "train", str(file), "speed=portable", "--out", str(whole))
    assert status == 0, output
    expected = weights(whole)
    for level in LEVELS[:-1]:
        half = interrupted(whole, tmp_path / level, 2)
        manifest = json.loads((half / "manifest.json").read_text())
        manifest["hardware"]["processor"] = "another processor"
        (half / "manifest.json").write_text(json.dumps(manifest))
        status, output = rlm(level, "train", str(half), "--resume", "--exact")
        assert status == 0, output
        assert "rounded" not in output
        assert weights(half) == expected


@pytest.mark.matrix
def test_other_instructions_are_told_and_refused_with_exact(tmp_path: Path) -> None:
    file, whole = recipe(tmp_path, save_total_limit=9), tmp_path / "whole"
    status, output = rlm(LEVELS[-1], "train", str(file), "--out", str(whole))
    assert status == 0, output
    half = interrupted(whole, tmp_path / "half", 2)
    status, output = rlm(LEVELS[-2], "train", str(half), "--resume", "--exact")
    assert status == 2, output
    assert "numbers would be rounded differently: hardware.capability" in output
    _, output = rlm(LEVELS[-2], "train", str(half), "--resume", "--allow-changed", "base")
    assert output.count("sums are rounded differently from here on") == 1, output


def test_equal_runs_at_once_on_a_cold_cache_have_equal_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RLM_TUNING", raising=False)
    file, outs = recipe(tmp_path), [tmp_path / f"run{number}" for number in range(4)]
    children = [start_child(lambda out=out: launch(file, [], out=out), out.with_suffix(".log")) for out in outs]
    for child, out in zip(children, outs, strict=True):
        assert status_of(child) == 0, out.with_suffix(".log").read_text()
    chosen = [json.loads((out / "manifest.json").read_text())["stages"]["01-grpo"]["tuning"] for out in outs]
    assert chosen[0]
    assert all(values == chosen[0] for values in chosen)
    assert all(weights(out) == weights(outs[0]) for out in outs)
