"""The engine `reference`: the numbers of the policy, faults that are named, and a base that stays what it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_runs import LORA, SCRATCH, train
from rlm_engines.adapters import check_adapter

from rlm_plugins.errors import RecipeError, RlmError


@pytest.mark.parametrize("lora", [LORA, pytest.param(None, marks=pytest.mark.full)])
@pytest.mark.parametrize("engine", ["reference", pytest.param("second_process", marks=pytest.mark.full)])
def test_an_engine_samples_from_the_policy_of_each_step(tmp_path: Path, engine: str, lora: Any) -> None:
    lines = train(tmp_path, engine, model={**SCRATCH, **({"lora": lora} if lora else {})})
    assert [line["versions"] for line in lines] == [[0] * 4, [1] * 4]
    assert max(line["max"] for line in lines) < 2e-6
    assert all(abs(line["ratio"] - 1) < 1e-5 for line in lines)


@pytest.mark.parametrize("lora", [LORA, pytest.param(None, marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("engine", "fault"),
    [
        ("KeepsFirst", "keeps the weights of an earlier sync"),
        ("DropsQueries", "drops what is trained in `q_proj`"),
        ("Halves", "computes in another type than the policy's float32"),
    ],
)
def test_a_fault_of_an_engine_is_named_before_the_first_step(
    tmp_path: Path, engine: str, fault: str, lora: Any
) -> None:
    with pytest.raises(RlmError) as caught:
        train(tmp_path, engine, model={**SCRATCH, **({"lora": lora} if lora else {})})
    assert f"the engine '{engine.lower()}' {fault}" in str(caught.value)


def test_a_base_that_changes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import engine_runs

    monkeypatch.setattr("rlm_engines.engine_check.EngineCheck", engine_runs.Merging)
    with pytest.raises(RlmError, match="the frozen base changed before step 2"):
        train(tmp_path, "reference", trainer={"learning_rate": 0.1})


@pytest.mark.parametrize(
    ("lora", "problem"),
    [
        ({"peft_type": "IA3"}, "adapters of the type LORA, got IA3"),
        ({"use_dora": True}, "what `use_dora` trains"),
        ({"modules_to_save": ["lm_head"]}, "what `modules_to_save` trains"),
        ({"bias": "all"}, "no biases"),
        ({"r": 8, "rank_pattern": {"q_proj": 1024}}, "ranks up to 512, got 1024"),
    ],
)
def test_an_adapter_that_vllm_cannot_load_is_refused(lora: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        check_adapter(lora)
    check_adapter(None)
    check_adapter(LORA)
