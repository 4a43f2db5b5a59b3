"""PEFT adapters other than LoRA, and quantization other than four bits, in a recipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
import transformers
from rlm_fast.weight_bytes import frozen_bytes, quantized_bytes

import rlm_plugins as rlm
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.models.pretrained import PACKAGES, quantization_config
from rlm_plugins.models.scratch import skeleton
from rlm_plugins.recipe.trainer_settings import REFUSED, adapter_config, config_class

FIELDS: dict[str, dict[str, Any]] = {
    "IA3": {"feedforward_modules": []},
    "OFT": {"oft_block_size": 4, "r": 0},
    "LN_TUNING": {"target_modules": ["norm"]},
    "C3A": {"block_size": 8},
    "FOURIERFT": {"n_frequency": 16},
    "WAVEFT": {"n_frequency": 16},
    "VBLORA": {"vector_length": 8, "num_vectors": 8},
    "RANDLORA": {"r": 2},
    "HRA": {"r": 2},
    "TRAINABLE_TOKENS": {"token_indices": [3, 4]},
}
"""Fields that a kind needs on layers of 16 to 64 units."""
TRAINED = ["LORA", "LOHA", "LOKR", "OFT", "IA3", "VERA", "FOURIERFT", "HRA", "LN_TUNING", "RANDLORA", "C3A"]


def fields(kind: str) -> dict[str, Any]:
    return {"peft_type": kind, "target_modules": ["q_proj", "v_proj"]} | FIELDS.get(kind, {})


def recipe(**model: Any) -> dict[str, Any]:
    document = tiny.recipe(model)
    return document | {"environment": {**document["environment"], "test_rows": 2}}


@pytest.mark.parametrize("kind", TRAINED)
def test_a_kind_trains_and_merges(kind: str) -> None:
    """Every trained weight has a gradient or starts at zero beside one that has; merging keeps the logits."""
    import peft

    policy = peft.get_peft_model(tiny.model(), adapter_config(fields(kind)))
    ids = torch.tensor([[3, 4, 5]])
    trained = [x for x in policy.parameters() if x.requires_grad]
    policy(input_ids=ids).logits.square().sum().backward()
    assert any(x.grad is not None and x.grad.abs().sum() > 0 for x in trained)
    torch.optim.SGD(trained, 1e-3).step()
    with torch.no_grad():
        adapted = policy(input_ids=ids).logits
        torch.testing.assert_close(policy.merge_and_unload()(input_ids=ids).logits, adapted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["LOHA", pytest.param("IA3", marks=pytest.mark.full)])
def test_a_recipe_trains_another_kind(tmp_path: Path, kind: str) -> None:
    run = rlm.train(recipe(lora=fields(kind)), out=tmp_path / "run")
    saved = json.loads((tmp_path / "run/01-grpo/adapter/adapter_config.json").read_text())
    assert saved["peft_type"] == kind
    assert run.score is not None
    assert rlm.evaluate(run)["score"] == run.score, "merged into the base"


@pytest.mark.parametrize("kind", REFUSED)
def test_a_kind_that_cannot_be_trained_is_refused_with_its_reason(kind: str) -> None:
    with pytest.raises(RecipeError, match=f"(?s)model.lora.peft_type.*'{kind}' cannot be trained: "):
        rlm.check(recipe(lora={"peft_type": kind.lower()}))


@pytest.mark.parametrize(
    ("lora", "problem"),
    [
        ({"peft_type": "LOHAA"}, "unknown kind 'LOHAA'.*did you mean 'LOHA'"),
        ({"peft_type": "LOHA", "rr": 4}, "unknown field 'rr' of peft.LoHaConfig"),
        ({"peft_type": "LOHA", "r": "four"}, "model.lora.r"),
        ({"peft_type": "LOHA", "target_modules": ["nowhere"]}, "PEFT rejects the adapter.*nowhere"),
    ],
)
def test_fields_are_those_of_the_kind(lora: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=f"(?s){problem}"):
        rlm.check(recipe(lora=lora))


def test_a_critic_beside_another_kind_is_separate() -> None:
    ppo = recipe(lora=fields("LOHA")) | {"algorithm": "ppo"}
    assert "critic" in rlm.check(ppo).text
    with pytest.raises(RecipeError, match=r"`model.lora.peft_type: LOHA` leaves no room"):
        rlm.check(ppo | {"critic": {"kind": "shared"}})


def test_every_kind_of_peft_is_named() -> None:
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    for kind in PEFT_TYPE_TO_CONFIG_MAPPING:
        if kind.value not in REFUSED:
            assert config_class({"peft_type": kind.value}) is PEFT_TYPE_TO_CONFIG_MAPPING[kind]


# ---------------------------------------------------------------- quantization


@pytest.mark.parametrize("method", PACKAGES)
def test_a_missing_package_is_named(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        RecipeError, match=f"(?s)requires the package {PACKAGES[method]}.*pip install {PACKAGES[method]}"
    ):
        quantization_config({"method": method}, four_bits=False)


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        ({}, "the key 'method' is missing"),
        ({"method": "bitsandbytes_9bit"}, "unknown method.*did you mean 'bitsandbytes_8bit'"),
        ({"method": "hqq", "n_bits": 4}, "unknown field 'n_bits' of transformers.HqqConfig.*did you mean 'nbits'"),
    ],
)
def test_a_wrong_quantization_is_refused(chosen: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=f"(?s){problem}"):
        quantization_config(chosen, four_bits=False)
    with pytest.raises(RecipeError, match="exclude each other"):
        quantization_config(chosen, four_bits=True)


def test_eight_bits_are_half_of_sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm_plugins.models.pretrained._is_installed", lambda module: True)
    quantized = quantization_config({"method": "bitsandbytes_8bit", "llm_int8_threshold": 5.0}, four_bits=False)
    assert (quantized.load_in_8bit, quantized.llm_int8_threshold) == (True, 5.0)
    config = tiny.model().config
    config.dtype = torch.float16
    model = skeleton(config, {"r": 2, "target_modules": ["q_proj"]})
    whole = frozen_bytes(model, config)
    config.quantization_config = quantized
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not model.get_output_embeddings()]
    assert whole - frozen_bytes(model, config) == sum(m.weight.numel() for m in linear if not m.weight.requires_grad)


@pytest.mark.parametrize(
    ("chosen", "width"), [({"bits": 4}, 0.5), ({"nbits": 2}, 0.25), ({"weights": "int8"}, 1.0), ({}, None)]
)
def test_the_width_of_a_quantized_weight(chosen: dict[str, Any], width: float | None) -> None:
    config = transformers.LlamaConfig()
    config.quantization_config = chosen
    assert quantized_bytes(config) == width


def test_quantized_weights_need_an_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlm_plugins.models.pretrained._is_installed", lambda module: True)
    tiny.model().save_pretrained(tmp_path)
    tiny.tokenizer("0123456789+-*=(),;? ").save_pretrained(tmp_path)
    document = recipe() | {"model": {"name": str(tmp_path), "quantization": {"method": "bitsandbytes_8bit"}}}
    plain = {"name": "dataset", "path": str(tmp_path / "d.jsonl"), "chat": False}
    (tmp_path / "d.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n' * 4)
    with pytest.raises(RlmError, match=r"(?s)quantized weights cannot be trained.*`model: \{lora"):
        rlm.check(document | {"environment": plain})
