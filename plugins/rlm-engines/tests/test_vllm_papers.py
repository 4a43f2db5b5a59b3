"""The recipe of every paper with `use_vllm: true` takes two steps with a vLLM server, on a tiny model."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from engine_runs import LORA

pytest.importorskip("vllm")
sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))
from test_papers import CANNED, OF_DATA, learned_from, pool, two_steps

from rlm_plugins import recipe
from rlm_plugins.registry import Registry

__all__ = ["pool"]  # completions to replay, in the current folder
ON_VLLM = [file for file in OF_DATA if recipe.load(file).bodies[0]["trainer"].get("use_vllm")]


@pytest.mark.parametrize("file", ON_VLLM, ids=lambda file: file.stem)
def test_a_recipe_takes_two_steps_with_vllm(
    file: Path, tmp_path: Path, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine check has compared vLLM with the policy before the first step."""
    monkeypatch.setattr("test_papers.WITH_CANNED", Registry([CANNED]))  # here no package is hidden
    model = {"name": str(server.base), "dtype": "float32", "lora": LORA}
    engine = {"name": "vllm_server", "url": server.url}
    further = [f"model={json.dumps(model)}", f"engine={json.dumps(engine)}", "trainer.use_vllm=true"]
    steps = learned_from(two_steps(file, tmp_path / "run", *further, has_engine=True))
    assert [step["step"] for step in steps] == [1, 2]
    assert all(math.isfinite(step["loss"]) for step in steps)
