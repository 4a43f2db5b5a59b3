"""The recipe of every paper that says `use_vllm: true` takes two steps with vLLM, on a tiny model."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pytest
from engine_runs import LORA, SCRATCH

pytest.importorskip("vllm")
sys.path.insert(0, str(Path(__file__).parents[3] / "tests"))
import test_papers

from rlm_plugins import recipe

FILES = [file for file in test_papers.FILES if recipe.load(file).bodies[0]["trainer"].get("use_vllm")]
GAMES = {file.stem for file in test_papers.OF_GAMES}
pool = test_papers.pool  # completions to replay, in the current folder


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recipe_takes_two_steps_with_vllm(file: Path, tmp_path: Path) -> None:
    """The engine check has compared vLLM with the policy before the first step."""
    further = [f"model={json.dumps({**SCRATCH, 'lora': LORA})}", "trainer.use_vllm=true"]
    further += ["engine={name: vllm, enforce_eager: true}", "trainer.vllm_max_model_length=128"]
    run = test_papers.two_steps(file, tmp_path / "run", *further, has_engine=True)
    steps = test_papers.learned_from(run)
    assert [step["step"] for step in steps] == [1, 2]
    assert all(math.isfinite(step["loss"]) for step in steps)
