"""A process killed at any file operation of a run loses at most the steps since the last save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fault_cases import KINDS, check_last_save, recipe, resume, weights
from fault_points import States, at_every_point, copied

from rlm_plugins.errors import RlmError
from rlm_plugins.run.launch import launch

pytestmark = [pytest.mark.slow, pytest.mark.faults(group="F1")]
CASES = [("critic", 144), *(pytest.param(kind, 1, marks=[pytest.mark.full, pytest.mark.matrix]) for kind in KINDS)]
"""Kind of run, and which states of it are resumed: every one, or every 144th."""


def killed_at_every_operation(folder: Path, kind: str) -> tuple[Path, dict[str, bytes], int]:
    """Train once; return the folder of all states in which a kill would leave the run, its result, and their count."""
    file, out, into = recipe(folder, kind, max_steps=2), folder / "run", folder / "states"
    states = States(out, into)
    count = at_every_point(lambda: launch(file, [], out=out), out, states.add, folder / "log")
    return into, weights(out), count


@pytest.mark.parametrize(("kind", "every"), CASES)
def test_kill_at_every_operation(tmp_path: Path, kind: str, every: int, cases: Any) -> None:
    """Kills after the last checkpoint are included: then only the steps after training are repeated."""
    into, expected, count = killed_at_every_operation(tmp_path, kind)
    found = list(copied(into))
    assert count > len(found) > 60
    for place, (number, operation, run) in enumerate(found):
        with cases(f"{kind}, operation {number}: {operation}"):
            check_last_save(run)
            if not (run / "recipe.yaml").exists():
                with pytest.raises(RlmError, match="there is no run to resume"):
                    launch(tmp_path / f"{kind}.yaml", [], out=run, resume=True)
            elif place % every == 0:
                assert weights(resume(run)) == expected
                assert json.loads((run / "summary.json").read_text())["after"] is not None
