"""The notebooks run: every cell, in order, on a tiny model."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[1] / "docs" / "notebooks"


def executed(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a notebook in a folder and return its variables."""
    monkeypatch.chdir(folder)
    return runpy.run_path(str(NOTEBOOKS / name))


@pytest.mark.slow
def test_from_trl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = executed("from_trl.py", tmp_path, monkeypatch)
    assert len(known["curve"]) == 2
    assert known["run"].score is not None


@pytest.mark.slow
def test_my_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = executed("my_data.py", tmp_path, monkeypatch)
    assert "solution" in known["mistake"]
    assert known["run"].score is not None
    assert len(known["run"].samples) > 0


@pytest.mark.slow
def test_my_variant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    known = executed("my_variant.py", tmp_path, monkeypatch)
    assert "of_the_batch() violates the law 'isolation'" in capsys.readouterr().out
    assert known["exact"]["plain"]["scale"] == pytest.approx(1)
    assert known["exact"]["mine"]["scale"] < 1
    assert {*known["runs"]} == {"grpo", "median"}


@pytest.mark.slow
def test_look_at_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = executed("look_at_a_run.py", tmp_path, monkeypatch)
    assert known["findings"], "a reward that is never earned has a finding"
    assert "<" in known["page"]._repr_html_()
