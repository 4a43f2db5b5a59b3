"""The notebook runs: every code cell, in order, on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebooks" / "from_trl.ipynb"


@pytest.mark.slow
def test_every_cell_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [], "outputs are not stored"
            exec("".join(cell["source"]), known)
    assert len(known["curve"]) == 2
    assert known["run"].score is not None
