"""The fast decoding step for decoders like Llama: the model's logits, or a fallback to the model itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import MethodType
from typing import Any

import fixtures_models
import pytest
import torch
from rlm_fast import llama_step as same_step
from rlm_fast.llama_step import LlamaStep, verified_step
from test_fast_generate import config, prompts, same

FAMILIES = {"Llama": {}, "Qwen2": {}, "Qwen3": {}, "Mistral": {"sliding_window": None}}
"""Of its kind; one has biases, one normalises its heads, three share keys between heads."""


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of sequences of each step."""
    rows: list[int] = []
    call = LlamaStep.__call__

    def counted(self: LlamaStep, token: torch.Tensor, *rest: Any) -> torch.Tensor:
        rows.append(len(token))
        return call(self, token, *rest)

    monkeypatch.setattr(LlamaStep, "__call__", counted)
    return rows


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def adapted_model(family: str, **changes: Any) -> Any:
    return fixtures_models.adapted(fixtures_models.model(family, **{**FAMILIES.get(family, {}), **changes})).eval()


# ------------------------------------------------------------------ models that use it


@pytest.mark.parametrize("family", FAMILIES)
def test_supported_decoder_uses_the_fast_step(family: str, read: list[int]) -> None:
    """The samples equal those of transformers, and no finished sequence is in a forward pass."""
    written = same(adapted_model(family), prompts(6, 3, times=6), config())
    alive = [int((written[:, 6 + t :] != 0).any(1).sum()) for t in range(1, written.shape[1] - 6)]
    assert alive[0] > alive[-1]
    assert read[-len(alive) :] == alive


@pytest.mark.parametrize("family", ["GPT2", "Phi3", "Olmo2", "Gemma", "Cohere"])
def test_unknown_module_is_called_unchanged(family: str, read: list[int]) -> None:
    same(fixtures_models.model(family).eval(), prompts(5, 3, times=2), config())
    assert not read


def watched(model: Any) -> None:
    model.get_submodule("model.layers.1.mlp").register_forward_hook(lambda *_: None)


def waited_for(model: Any) -> None:
    model.register_forward_pre_hook(lambda *_: None)


def patched(model: Any) -> None:
    mlp = model.get_submodule("model.layers.1.mlp.act_fn")
    mlp.forward = MethodType(lambda _, x: x.sigmoid(), mlp)


def another_product(model: Any) -> None:
    layer = model.get_submodule("model.layers.0.self_attn.v_proj")
    usual = layer.forward
    layer.forward = lambda x: 2 * usual(x)


def another_piece(model: Any) -> None:
    model.get_submodule("model.layers.0").add_module("extra", torch.nn.Identity())


@pytest.mark.parametrize("change", [watched, waited_for, patched, another_product, another_piece])
def test_modified_modules_are_called_unchanged(change: Callable[[Any], None], read: list[int]) -> None:
    """This holds after a self-check of the unmodified model, too."""
    model = fixtures_models.model("Llama").eval()
    same(model, prompts(4, times=2), config())
    assert read
    read.clear()
    change(model)
    same(model, prompts(4, times=2), config())
    assert not read


@pytest.mark.parametrize(
    "load_options",
    [
        {"modules_to_save": ["embed_tokens"]},
        {"modules_to_save": ["input_layernorm"]},
        {"modules_to_save": ["lm_head"]},
        {"target_modules": ["embed_tokens", "q_proj"]},
    ],
    ids=["words", "norm", "head", "words with an adapter"],
)
def test_trained_base_weights_are_not_treated_as_frozen(load_options: dict[str, Any], read: list[int]) -> None:
    """At the start, when the self-check would run, both weights are equal."""
    model = fixtures_models.adapted(fixtures_models.model("Llama"), **load_options).eval()
    same(model, prompts(4, times=2), config())
    with torch.no_grad():
        for x in model.parameters():
            if x.requires_grad:
                x.add_(torch.randn_like(x) * 0.3)
    same(model, prompts(4, times=2), config())
    assert not read


def test_inactive_hidden_state_hooks_are_allowed(read: list[int]) -> None:
    model = fixtures_models.model("Llama").eval()
    model(torch.tensor([[3, 4]]), output_hidden_states=True)
    assert any(module._forward_hooks for module in model.modules())
    same(model, prompts(4, times=2), config())
    assert read


def test_gradient_checkpointing_falls_back(read: list[int]) -> None:
    """The hook that enables gradients of frozen embeddings does not affect generation."""
    model = adapted_model("Llama")
    model.enable_input_require_grads()
    same(model, prompts(4, times=2), config())
    assert read


def test_lookalike_decoder_fails_the_self_check(read: list[int], caplog: pytest.LogCaptureFixture) -> None:
    """Granite multiplies the output of its layers."""
    model = fixtures_models.model("Granite", residual_multiplier=0.5).eval()
    with caplog.at_level(logging.WARNING, same_step.__name__):
        for _ in range(2):
            same(model, prompts(4, 2, times=2), config())
    assert read == [7, 3], "the trial"
    assert [record.getMessage() for record in caplog.records if record.name == same_step.__name__] == [
        "decoding calls the model module by module: its logits differ from a Llama-type forward"
    ]


def test_self_check_runs_once(read: list[int]) -> None:
    model = fixtures_models.model("Llama").eval()
    for _ in range(3):
        with torch.no_grad():
            assert verified_step(model) is not None
    assert read == [7, 3]
