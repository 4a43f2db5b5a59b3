"""Models without padding-free pass or fast generation train like stock TRL, with one log line each."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import fixtures_vision
import numpy as np
import pytest
import tiny
import torch
import transformers
from datasets import Dataset
from fixtures_trainer import REGISTRY, trainer
from peft import LoHaConfig, LoraConfig, PromptTuningConfig
from peft.tuners.lora.layer import Linear
from repetition import one_in
from rlm_fast import fast
from rlm_fast import linear_layers as products
from rlm_fast.fused_layers import FusedLinear
from rlm_fast.linear_layers import is_cast
from rlm_fast.model_limits import IMAGES
from rlm_fast.packed_forward import USES_RNG
from rlm_fast.speed import NO_SPEED, Speed
from test_fast_paths import weights

from rlm_plugins.trainer import EquationTrainer

WORDS = len(tiny.tokenizer())
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "bos_token_id": None,
    "eos_token_id": 1,
}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
PADDED, DECODED = "padded forward passes: ", "generation falls back to transformers: "
TO_THE_BIT = replace(Speed(), fused_lora=False)
"""The terms of fused products are added in another order."""
Made = dict[str, Any]


def random_model(family: str, **changes: Any) -> Any:
    """Return a small model with random weights."""
    torch.manual_seed(3)
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **changes}, initializer_range=0.3)
    return transformers.AutoModelForCausalLM.from_config(config)


def lora(**changes: Any) -> LoraConfig:
    return LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", **changes)


KINDS: dict[str, tuple[Callable[[], Made], str, str]] = {
    "sliding window": (lambda: {"model": random_model("Mistral", **HEADS, sliding_window=12)},
        "the batch is wider than 12 tokens, beyond which positions or attention differ",
        "not every layer caches keys and values of all tokens"),
    "recurrent layers": (lambda: {"model": random_model("Mamba", state_size=4), "peft_config": None},
        "the model has layers without attention", "the model input `cache_params` is unsupported"),
    "virtual tokens": (lambda: {"peft_config": PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)},
        "the adapter adds virtual tokens to each prompt", "the adapter adds virtual tokens to each prompt"),
    "dropout": (lambda: {"peft_config": lora(lora_dropout=0.3)}, "dropout is on, and its masks depend on the padding",
        "dropout is on, and its masks depend on the batch"),
    "random numbers that no module owns to": (
        lambda: {"peft_config": LoHaConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj", "down_proj"])},
        USES_RNG,
        USES_RNG,
    ),
    "dora": (lambda: {"peft_config": lora(use_dora=True)}, "", ""),
}  # fmt: skip
"""What is trained, and why it is read padded and written by transformers; empty: it is not."""


def trained(folder: Path, quick: bool, make: Callable[[], Made], **settings: Any) -> EquationTrainer:
    """Train two steps, with every fast path or with none."""
    options = make()
    options |= {"generator": REGISTRY.find("rlm_generators", "fast").bind({})} if quick else {}
    pieces = {"speed": TO_THE_BIT if quick else NO_SPEED, **options}
    it = trainer(folder, pieces=pieces, max_steps=2, learning_rate=1e-3, **settings)
    it.train()
    return it


def apart(one: EquationTrainer, other: EquationTrainer) -> torch.Tensor:
    return (weights(one) - weights(other)).norm()


@pytest.mark.parametrize(("make", "padded", "written"), one_in(3, [*KINDS.values()]), ids=KINDS)
def test_fallback_equals_trl(
    make: Callable[[], Made], padded: str, written: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fast._log_fallback.cache_clear()
    slow = trained(tmp_path / "slow", False, make)
    with caplog.at_level(logging.WARNING, "rlm_plugins"):
        quick = trained(tmp_path / "quick", True, make)
    logged = [record.getMessage() for record in caplog.records]
    assert [line for line in logged if line.startswith(PADDED)] == ([PADDED + padded] if padded else [])
    assert [line for line in logged if line.startswith(DECODED)] == ([DECODED + written] if written else [])
    start = weights(trainer(tmp_path, pieces=make()))
    moved = (weights(slow) - start).norm()
    assert moved > 0
    assert torch.equal(weights(quick), weights(slow)) if padded else apart(quick, slow) < 5e-4 * moved


def test_model_cast_at_call_time_generates_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No weight is copied to float32 and no fast step is built; no self-check runs and nothing is logged."""
    monkeypatch.setattr(products, "MIN_WEIGHT", 0)
    fast._log_fallback.cache_clear()
    with caplog.at_level(logging.WARNING, "rlm_plugins"):
        equation_trainer = trained(
            tmp_path, True, lambda: {"model": random_model("Llama", **HEADS), "peft_config": None}, bf16=True
        )
    assert is_cast(equation_trainer.model)
    assert not [record for record in caplog.records if record.name.startswith(("rlm_plugins", "rlm_fast"))]


def test_trainer_without_fusion_restores_fused_layers(tmp_path: Path) -> None:
    def layers(speed: Speed, **given: Any) -> tuple[Any, set[type]]:
        model = trainer(tmp_path, pieces={"speed": speed, **given}).model
        return model, {type(layer) for layer in model.modules() if isinstance(layer, Linear)}

    model, quick = layers(Speed(), peft_config=lora())
    assert quick == {FusedLinear}
    assert layers(NO_SPEED, model=model, peft_config=None)[1] == {Linear}


@pytest.mark.parametrize("settings", [{"steps_per_generation": 2}, {"num_iterations": 2}], ids=["parts", "again"])
@pytest.mark.parametrize("kind", ["dropout", "random numbers that no module owns to"])
def test_dropout_disables_reuse_of_old_logprobs(tmp_path: Path, kind: str, settings: Made) -> None:
    """Old log-probs need a forward pass with other dropout masks; self-checks do not change the random state."""
    make = KINDS[kind][0]
    slow, quick = (trained(tmp_path / str(quick), quick, make, **settings) for quick in (False, True))
    assert torch.equal(weights(quick), weights(slow))


def test_load_balancing_loss_keeps_the_micro_batches(tmp_path: Path) -> None:
    """The load-balancing loss is a product of means over a micro-batch, so it depends on the completions in it."""

    def run(folder: str, speed: Speed) -> torch.Tensor:
        pieces = {"speed": speed, "model": random_model("Mixtral", **HEADS, num_local_experts=4), "peft_config": lora()}
        equation_trainer = trainer(
            tmp_path / folder, pieces=pieces, max_steps=2, learning_rate=1e-3, gradient_accumulation_steps=2
        )
        assert equation_trainer.aux_loss_enabled
        equation_trainer.train()
        return weights(equation_trainer)

    assert torch.equal(run("quick", replace(Speed(), fused_lora=False)), run("slow", NO_SPEED))


def vision_language_model() -> Made:
    """Return a small vision-language model and its processor, with one token per patch."""
    tool = fixtures_vision.processor()
    return {"model": fixtures_vision.model(tool), "processing_class": tool, "peft_config": None}


def image_questions() -> Dataset:
    """Return a data set of questions, each with an image of noise."""
    pillow, draw = pytest.importorskip("PIL.Image"), np.random.default_rng(0)
    shape = (fixtures_vision.SIDE, fixtures_vision.SIDE, 3)
    images = [pillow.fromarray(draw.integers(0, 255, shape, dtype=np.uint8)) for _ in range(16)]
    messages = [[{"role": "user", "content": f"{i % 10}+1="}] for i in range(len(images))]
    return Dataset.from_dict({"prompt": messages, "image": images}).cast_column("image", datasets.Image())


@pytest.mark.parametrize("regroup", [True, False])
def test_models_with_images_equal_trl(tmp_path: Path, caplog: pytest.LogCaptureFixture, regroup: bool) -> None:
    fast._log_fallback.cache_clear()

    def run(folder: str, speed: Speed, **generator: Any) -> EquationTrainer:
        pieces = {"speed": speed, **vision_language_model(), **generator}
        settings = {"max_steps": 2, "learning_rate": 1e-3, "gradient_accumulation_steps": 2}
        equation_trainer = trainer(tmp_path / folder, data=image_questions(), pieces=pieces, **settings)
        equation_trainer.train()
        return equation_trainer

    slow = run("slow", NO_SPEED)
    with caplog.at_level(logging.WARNING, "rlm_plugins"):
        writer = REGISTRY.find("rlm_generators", "fast").bind({})
        quick = run("quick", replace(Speed(), group_micro_batches=regroup), generator=writer)
    assert torch.equal(weights(quick), weights(slow))
    assert not torch.equal(
        weights(slow), weights(trainer(tmp_path, data=image_questions(), pieces=vision_language_model()))
    )
    logged = [record.getMessage() for record in caplog.records]
    for about in (PADDED, DECODED):
        assert [line for line in logged if line.startswith(about)] == [about + IMAGES]
