"""The guide `docs/your-data.md`, executed block by block in an empty folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from launch_runs import ROOT
from test_docs import blocks
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
    assert "4 prompts × 4 completions" in signal
    assert "recipe: held-out accuracy" in train
    assert "mean@4" in evaluation
    scope: dict[str, Any] = {}
    (code,) = blocks("python", GUIDE)
    exec(code, scope)
    assert Path("my-trained-model/model.safetensors").exists()
    assert Path("runs/recipe/01-grpo/adapter/README.md").exists()
