"""A fused gated MLP: output and gradients of the module, in less memory; anything else is left to the module."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rlm_fast import fused_lora
from rlm_fast.fused_lora import FusedMLP, fuse_mlps
from test_cpu_linear import check_gradients, drawn, kept_bytes, pair
from test_fast_generate import prompts

from rlm_plugins.errors import RlmError

FUSED = ("Llama", "Qwen2", "Qwen3", "Olmo2")


@pytest.fixture(autouse=True)
def _nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_lora, "MIN_PRODUCTS", 0)


def mlps(model: Any) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, FusedMLP)]


def fused_pair(family: str, **changes: Any) -> tuple[Any, Any]:
    usual, fused = pair(family, **changes)
    fuse_mlps(fused)
    return usual, fused


def is_called(model: Any, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return True if a forward pass used our function."""
    calls = []
    forward = fused_lora._Gated.forward
    monkeypatch.setattr(fused_lora._Gated, "forward", lambda *given: (calls.append(1), forward(*given))[1])
    model(prompts(5)["input_ids"])
    monkeypatch.undo()
    return bool(calls)


@pytest.mark.parametrize("family", FUSED)
def test_gradients_are_those_of_the_modules(family: str) -> None:
    usual, fused = fused_pair(family, r=4, lora_alpha=12)
    assert len(mlps(fused)) == 2
    check_gradients(pair(family, r=4, lora_alpha=12)[0], usual, fused)


def test_it_keeps_two_of_four_wide_tensors() -> None:
    x = drawn(7, 32).requires_grad_()
    usual, fused = (kept_bytes(model.base_model.model.model.layers[0].mlp, x) for model in fused_pair("Llama"))
    assert usual - fused == 2 * 4 * 7 * 48


def test_a_frozen_input_has_no_gradient_and_a_second_derivative_is_refused() -> None:
    mlp = mlps(fused_pair("Llama")[1])[0]
    mlp(drawn(3, 32)).sum().backward()
    assert mlp.up_proj.lora_B["default"].weight.grad is not None
    x = drawn(3, 32).requires_grad_()
    with pytest.raises(RlmError, match="fused_lora: false"):
        torch.autograd.grad(mlp(x).square().sum(), x, create_graph=True)


def watched(model: Any) -> Any:
    """Register a hook on a layer that the fused function would not call."""
    for mlp in mlps(model):
        mlp.gate_proj.register_forward_hook(lambda *given: given[-1] * 2)
    return model


OTHERS: dict[str, Any] = {
    "dropout": lambda: fused_pair("Llama", lora_dropout=0.5)[1].train(),
    "attention alone": lambda: fused_pair("Llama", target_modules=["q_proj"])[1],
    "a watched layer": lambda: watched(fused_pair("Llama")[1]),
    "half": lambda: fused_pair("Llama")[1].to(torch.bfloat16),
    "no gated MLP": lambda: fused_pair("GPT2")[1],
    "off": lambda: switched_off(fused_pair("Llama")[1]),
}


def switched_off(model: Any) -> Any:
    fuse_mlps(model, enabled=False)
    assert not mlps(model)
    return model


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_others_are_left_to_the_module(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_called(make(), monkeypatch)


def test_with_the_adapter_off_the_base_is_computed() -> None:
    usual, fused = fused_pair("Llama")
    ids = prompts(9)["input_ids"]
    with torch.no_grad(), usual.disable_adapter(), fused.disable_adapter():
        torch.testing.assert_close(fused(ids).logits, usual(ids).logits, rtol=1e-5, atol=1e-5)


def test_a_module_with_another_formula_is_not_fused() -> None:
    """Its layers have the same names."""
    usual, _ = pair("Llama")
    fused_lora.fuse_lora(usual)
    module = usual.base_model.model.model.layers[0].mlp
    module.__class__ = type(
        "Squared", (type(module),), {"forward": lambda self, x: super(type(self), self).forward(x) ** 2}
    )
    fuse_mlps(usual)
    assert [type(mlp).__name__ for mlp in mlps(usual)] == ["FusedLlamaMLP"], "the other layer alone"
