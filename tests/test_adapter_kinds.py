"""PEFT adapters other than LoRA, and quantized weights, in a recipe and in training."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import peft
import pytest
import tiny
import torch
import transformers
import yaml
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from rlm_fast.weight_bytes import frozen_bytes, quantized_bytes
from rlm_lab.evaluate import Sampler
from rlm_lab.export import export
from safetensors.torch import load_file

import rlm_plugins as rlm
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.models.pretrained import PACKAGES, quantization_config
from rlm_plugins.models.scratch import skeleton
from rlm_plugins.recipe.trainer_settings import REFUSED, adapter_config, config_class
from rlm_plugins.registry import Registry

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
    with pytest.raises(
        RlmError, match=r"(?s)quantized weights cannot be trained.*`model: \{lora: \{r: 16, lora_alpha: 32"
    ):
        rlm.check(document | {"environment": plain})


METHODS: list[tuple[str, dict[str, Any], float]] = [
    ("bitsandbytes", {"load_in_4bit": True}, 1e-2),
    ("bitsandbytes", {"quantization": {"method": "bitsandbytes_8bit"}}, 1e-2),
    ("optimum.quanto", {"quantization": {"method": "quanto", "weights": "int8"}}, 1e-5),
    ("optimum.quanto", {"quantization": {"method": "quanto", "weights": "int4"}}, 1e-5),
]
"""Module, keys of `model`, and the relative difference of gradients that its compute type explains (bfloat16: 2⁻⁸)."""
REWARD = "def spread(completions, **columns):\n    return [sum(map(ord, str(text))) % 7 / 7 for text in completions]\n"


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize(("module", "keys", "tolerance"), METHODS, ids=lambda value: str(value))
def test_an_adapter_on_quantized_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, keys: dict[str, Any], tolerance: float
) -> None:
    """The optimizations keep the gradient; the trained model can be sampled from and exported."""
    if not is_installed(module):
        pytest.skip(f"{module} is not installed")
    monkeypatch.setenv("RLM_TRUST", "1")
    sizes = {"hidden": 64, "heads": 2, "intermediate": 128}
    base = Registry().find("rlm_models", "scratch").bind(sizes).call({})
    base.load().save_pretrained(tmp_path / "base")
    base.tokenizer().save_pretrained(tmp_path / "base")
    (tmp_path / "reward.py").write_text(REWARD)
    steps = {"max_steps": 2, "num_generations": 4, "per_device_train_batch_size": 8, "max_completion_length": 6}
    rule = {"optim": "sgd", "learning_rate": 0.5, "max_grad_norm": 0.0}  # the change of the weights is the gradient
    recipe = {
        "model": {"name": str(tmp_path / "base"), "lora": {"r": 2, "target_modules": "all-linear"}, **keys},
        "environment": {"name": "addition", "digits": 2, "test_rows": 4},
        "rewards": ["./reward.py:spread"],
        "algorithm": "dr_grpo",
        "trainer": {**steps, **rule},
        "evaluation": None,
    }
    runs: list[rlm.Run] = []
    for speed in ({}, {"speed": "none"}):
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe | speed))
        runs.append(rlm.train(tmp_path / "recipe.yaml", out=tmp_path / f"run{len(runs)}"))
    fast, plain = (weights_of(run) for run in runs)
    assert plain.norm() > 0
    assert ((fast - plain).norm() / plain.norm()).item() < tolerance
    completions = [[json.loads(line)["completion"] for line in lines_of(run)] for run in runs]
    assert completions[0] == completions[1]
    quantized = {type(layer).__name__ for layer in runs[0].model()[0].modules()}
    assert quantized & {"Linear4bit", "Linear8bitLt", "QLinear"}
    assert len(Sampler(runs[0].folder).complete("1+1=?", count=2)) == 2
    export(runs[0].folder, str(tmp_path / "adapter"))
    if module == "optimum.quanto":
        with pytest.raises(RlmError, match="cannot be saved"):
            export(runs[0].folder, str(tmp_path / "merged"), merge=True)
    else:
        export(runs[0].folder, str(tmp_path / "merged"), merge=True)


def weights_of(run: rlm.Run) -> torch.Tensor:
    """Return the second factors of the adapter, which begin at zero."""
    found = load_file(run.folder / "01-dr_grpo" / "adapter" / "adapter_model.safetensors")
    return torch.cat([x.flatten() for name, x in sorted(found.items()) if "lora_B" in name])


def lines_of(run: rlm.Run) -> list[str]:
    return (run.folder / "samples.jsonl").read_text().splitlines()
