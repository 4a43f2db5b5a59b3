"""The guide `docs/your-data.md` and the notebooks, executed block by block on a tiny model."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest
from launch_runs import ROOT
from test_docs import blocks
from test_process_memory import fetched
from typer.testing import CliRunner

from rlm_plugins.builtin.models import scratch
from rlm_plugins.cli import app

GUIDE = (ROOT / "docs" / "your-data.md").read_text()


@pytest.mark.slow
def test_the_guide_from_a_file_to_an_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = scratch(hidden=32, layers=1, intermediate=64)
    model.load().save_pretrained("my-model")
    model.tokenizer().save_pretrained("my-model")
    (data,), (recipe,) = blocks("json", GUIDE), blocks("yaml", GUIDE)
    Path("questions.jsonl").write_text(data)
    Path("recipe.yaml").write_text(recipe)
    outputs = []
    for line in "".join(blocks("bash", GUIDE)).splitlines():
        command = line.partition("#")[0].split()
        assert command[0] == "rlm"
        result = CliRunner().invoke(app, command[1:], env={"COLUMNS": "200"})
        assert result.exit_code == 0, result.output
        outputs.append(result.output)
    check, signal, train, evaluation = outputs
    assert "license: not stated" in check
    assert "4 prompts (whole steps of 2) × 4 completions" in signal
    assert "recipe: held-out accuracy" in train
    assert "mean@4" in evaluation
    scope: dict[str, Any] = {}
    (code,) = blocks("python", GUIDE)
    exec(code, scope)
    assert Path("my-trained-model/model.safetensors").exists()
    assert Path("runs/recipe/01-grpo/adapter/README.md").exists()


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


@pytest.mark.slow
def test_ppo_on_one_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = executed("ppo_on_one_base.py", tmp_path, monkeypatch)
    assert len(known["explained"]) == 6
    assert known["weights"]["shared"] < known["weights"]["separate"], "an adapter is smaller than a model"


def test_a_real_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched()
    monkeypatch.setenv("RLM_TRUST", "1")
    known = executed("a_real_model.py", tmp_path, monkeypatch)
    assert known["before"]["pass_at_g"] > 0, "of eight completions one is right for some prompt"
    assert len(known["answer"]) > 0
