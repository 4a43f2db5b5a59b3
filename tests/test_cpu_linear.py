"""Products of both libraries, LoRA layers and gated MLPs with fused products: equal outputs and gradients."""

from __future__ import annotations

from typing import Any

import fixtures_models
import peft
import pytest
import torch
from rlm_fast import fused_layers as lora
from rlm_fast import linear_layers as products
from rlm_fast.linear_layers import PackedLinear, fast_linear, packing_pays
from test_fast_generate import config, prompts, same
from torch.nn.functional import linear

from rlm_plugins.errors import RlmError


@pytest.fixture(autouse=True)
def _nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lora, "MIN_PRODUCTS", 0)
    monkeypatch.setattr("rlm_fast.linear_layers.MERGE_TOKENS", 0)


@pytest.fixture(params=["usual", "oneDNN", "transposed"])
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Select the kernel of every product."""
    if request.param != "usual":
        for name in ("MIN_TOKENS", "MIN_PRODUCTS", "MIN_WEIGHT", "MIN_SWAPPED"):
            monkeypatch.setattr(products, name, 0)
        monkeypatch.setattr(products, "MAX_SWAPPED", 2**40 if request.param == "transposed" else 0)
    else:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    return str(request.param)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


# ------------------------------------------------------------------ one product


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 3, 70])
def test_product_equals_float64(library: str, rows: int, bias: bool) -> None:
    x, weight, b = drawn(rows, 48), drawn(40, 48), drawn(40) if bias else None
    truth = linear(x.double(), weight.double(), None if b is None else b.double()).float()
    turned = weight.T.contiguous().T
    for found in (
        fast_linear(x, weight, b),
        fast_linear(x, turned, b),
        PackedLinear(weight, b)(x),
        PackedLinear(turned, b)(x),
    ):
        torch.testing.assert_close(found, truth, rtol=1e-5, atol=1e-5)
    for odd in (drawn(rows, 96)[:, ::2], drawn(48, rows).T, drawn(48).expand(rows, 48)):
        torch.testing.assert_close(fast_linear(odd, weight, b), linear(odd, weight, b), rtol=1e-5, atol=1e-5)
    x = x.view(1, rows, 48)
    torch.testing.assert_close(PackedLinear(weight, b)(x), truth[None], rtol=1e-5, atol=1e-5)


def test_faster_library_is_chosen() -> None:
    large = torch.empty(2**9, 2**8)
    assert packing_pays(large)
    assert packing_pays(large.to("meta")) != torch.accelerator.is_available()
    assert not packing_pays(large[:-1]), "small"
    assert not packing_pays(large.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert not packing_pays(large)


def test_without_onednn_the_default_product_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = drawn(70, 2**9), drawn(2**8, 2**9)
    assert not torch.equal(fast_linear(x, weight), linear(x, weight)), "the order of the sum is another"
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert torch.equal(fast_linear(x, weight), linear(x, weight))
    assert torch.equal(PackedLinear(weight, None)(x), linear(x, weight))
    monkeypatch.undo()
    with torch.backends.mkldnn.flags(enabled=False):
        assert torch.equal(fast_linear(x, weight), linear(x, weight)), "who turned it off"


@pytest.mark.parametrize("family", fixtures_models.CONFIGS)
def test_the_samples_are_those_of_transformers(family: str, library: str) -> None:
    """Adapters are enabled, or disabled on bases with an unchanged memory layout."""
    model = fixtures_models.adapted(fixtures_models.model(family)).eval()
    same(model, prompts(7, 4, 2, times=3), config())
    with model.disable_adapter():
        same(model, prompts(7, 4, times=2), config())


# ------------------------------------------------------------------ a LoRA layer


def pair(family: str, **changes: Any) -> tuple[Any, Any]:
    """Return a model with an adapter, and the same model with fused layers."""
    usual, fused = (fixtures_models.adapted(fixtures_models.model(family), **changes) for _ in range(2))
    lora.fuse_lora(fused)
    return usual, fused


def mlp_pair(family: str, **changes: Any) -> tuple[Any, Any]:
    """Return the same models with fused gated MLPs besides."""
    usual, fused = pair(family, **changes)
    lora.fuse_mlps(fused)
    return usual, fused


def mlps(model: Any) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, lora.FusedMLP)]


def is_fused(model: Any, ids: torch.Tensor, monkeypatch: pytest.MonkeyPatch, function: Any = lora._Fused) -> bool:
    """Return True if a forward pass used our product, or another function of ours."""
    calls = []
    forward = function.forward
    monkeypatch.setattr(function, "forward", lambda *given: (calls.append(1), forward(*given))[1])
    model(ids)
    monkeypatch.undo()
    return bool(calls)


@pytest.mark.parametrize("family", fixtures_models.CONFIGS)
def test_a_fused_layer_gives_the_gradients_of_the_modules(family: str, library: str) -> None:
    options: dict[str, Any] = {"r": 4, "lora_alpha": 12}
    check_gradients(pair(family, **options)[0], *pair(family, **options))


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3", "Olmo2"])
def test_a_fused_mlp_gives_the_gradients_of_the_modules(family: str) -> None:
    usual, fused = mlp_pair(family, r=4, lora_alpha=12)
    assert len(mlps(fused)) == 2
    check_gradients(pair(family, r=4, lora_alpha=12)[0], usual, fused)


def check_gradients(exact: Any, usual: Any, fused: Any) -> None:
    """Compare logits and gradients with those of PEFT's layers in double precision; both have errors of rounding."""
    ids, found = prompts(12, 12, 12)["input_ids"], []
    for model in (exact.double(), usual, fused):
        logits = model(ids).logits
        weight = drawn(*logits.shape).to(logits.dtype)
        found.append((logits.detach().double(), fixtures_models.gradient(model, (logits * weight).sum()).double()))
    for should, by_modules, by_us in zip(*found, strict=True):
        assert (by_modules - should).norm() <= 5e-6 * should.norm()
        assert (by_us - should).norm() <= 5e-6 * should.norm()


def test_a_fused_layer_keeps_no_more_for_the_backward_pass() -> None:
    usual, fused = (kept_bytes(model, prompts(12, 12)["input_ids"]) for model in pair("Qwen3"))
    assert usual == fused > 0
    x = drawn(7, 32).requires_grad_()
    usual, fused = (kept_bytes(model.base_model.model.model.layers[0].mlp, x) for model in mlp_pair("Llama"))
    assert usual - fused == 2 * 4 * 7 * 48, "two of the four wide tensors"


def kept_bytes(model: Any, x: torch.Tensor) -> int:
    """Return the bytes that autograd keeps for the backward pass of a module, without its parameters."""
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(y: torch.Tensor) -> torch.Tensor:
        kept[y.untyped_storage().data_ptr()] = y.untyped_storage()
        return y

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda y: y):
        model(x)
    own = {y.untyped_storage().data_ptr() for y in model.parameters()}
    return sum(storage.nbytes() for place, storage in kept.items() if place not in own)


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "GPT2"])
@pytest.mark.parametrize("mode", ["autocast", "weights", "weights and autocast", "weights and adapters"])
def test_bfloat16_is_no_further_from_the_truth_than_peft(mode: str, family: str) -> None:
    """The truth is computed in float64 with the same weights; rounding differs per input, so six are averaged."""
    exact, *others = pair(family, r=4)[0], *mlp_pair(family, r=4)
    for model in (exact, *others):
        for name, x in model.named_parameters():
            is_half = model is not exact and ("adapters" if "lora_" in name else "weights") in mode
            x.data = x.data.bfloat16().to(torch.bfloat16 if is_half else x.dtype)
    errors = torch.zeros(2, 2)
    for seed in range(6):
        ids, results = torch.randint(3, 41, (3, 12), generator=torch.Generator().manual_seed(seed)), []
        for model in (exact.double(), *others):
            with torch.autocast("cpu", torch.bfloat16, enabled="autocast" in mode and model is not exact):
                logits = model(ids).logits
            gradient = fixtures_models.gradient(model, (logits * drawn(*logits.shape).to(logits.dtype)).sum())
            results.append((logits.detach().double(), gradient.double()))
        pairs = [[*zip(found, results[0], strict=True)] for found in results[1:]]
        errors += torch.tensor([[(x - y).norm() / y.norm() for x, y in found] for found in pairs])
    assert ((errors[1] <= 1.5 * errors[0]) & (errors[0] > 6e-3)).all()


@pytest.mark.parametrize("make", [pair, mlp_pair])
def test_its_base_alone_is_read_where_the_adapter_is_off(make: Any, library: str) -> None:
    usual, fused = make("Qwen2")
    ids = prompts(9)["input_ids"]
    with torch.no_grad(), usual.disable_adapter(), fused.disable_adapter():
        torch.testing.assert_close(fused(ids).logits, usual(ids).logits, rtol=1e-5, atol=1e-5)


OTHERS: dict[str, Any] = {
    "dropout": lambda: pair("Llama", lora_dropout=0.5)[1].train(),
    "dora": lambda: pair("Llama", use_dora=True)[1],
    "merged": lambda: merged_in(pair("Llama")[1]),
    "a trained base": lambda: pair("Llama")[1].requires_grad_(True),
    "trained biases": lambda: pair("Qwen2", bias="all", target_modules=["q_proj", "v_proj"])[1],
    "half": lambda: pair("Llama")[1].to(torch.float16),
    "two at once": lambda: two(pair("Llama")[0]),
    "a watched lora_A": lambda: watched(pair("Llama")[1], "lora_A"),
    "a watched lora_B": lambda: watched(pair("Llama")[1], "lora_B"),
    "a watched dropout": lambda: watched(pair("Llama")[1], "lora_dropout"),
}


WITHOUT_FUSED_MLP: dict[str, Any] = {
    "dropout": lambda: mlp_pair("Llama", lora_dropout=0.5)[1].train(),
    "attention alone": lambda: mlp_pair("Llama", target_modules=["q_proj"])[1],
    "a watched layer": lambda: watched_gate(mlp_pair("Llama")[1]),
    "no gated MLP": lambda: mlp_pair("GPT2")[1],
    "off": lambda: switched_off(mlp_pair("Llama")[1]),
}


def watched_gate(model: Any) -> Any:
    """Register a hook on a layer that the fused function would not call."""
    for mlp in mlps(model):
        mlp.gate_proj.register_forward_hook(lambda *given: given[-1] * 2)
    return model


def switched_off(model: Any) -> Any:
    lora.fuse_mlps(model, enabled=False)
    assert not mlps(model)
    return model


@pytest.mark.parametrize("make", WITHOUT_FUSED_MLP.values(), ids=WITHOUT_FUSED_MLP)
def test_other_mlps_are_left_to_the_module(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_fused(make(), prompts(5)["input_ids"], monkeypatch, lora._Gated)


def test_a_module_with_another_formula_is_not_fused() -> None:
    """Its layers have the same names."""
    usual, _ = pair("Llama")
    lora.fuse_lora(usual)
    module = usual.base_model.model.model.layers[0].mlp
    module.__class__ = type(
        "Squared", (type(module),), {"forward": lambda self, x: super(type(self), self).forward(x) ** 2}
    )
    lora.fuse_mlps(usual)
    assert [type(mlp).__name__ for mlp in mlps(usual)] == ["FusedLlamaMLP"], "the other layer alone"


def watched(model: Any, part: str) -> Any:
    """Register a hook that doubles the output of a module in each layer."""
    for layer in model.modules():
        if type(layer) is lora.FusedLinear:
            getattr(layer, part)["default"].register_forward_hook(lambda *given: given[-1] * 2)
    return model


def merged_in(model: Any) -> Any:
    model.merge_adapter()
    return model


def two(model: Any) -> Any:
    model.add_adapter("second", model.peft_config["default"])
    model.base_model.set_adapter(["default", "second"])
    lora.fuse_lora(model)
    return model


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_modified_layers_are_left_to_peft(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = make(), prompts(5)["input_ids"]
    torch.manual_seed(0)
    found = model(ids).logits
    assert not is_fused(model, ids, monkeypatch)
    lora.fuse_lora(model, enabled=False)
    torch.manual_seed(0)
    assert torch.equal(model(ids).logits, found)


def test_small_layers_are_left_to_peft(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fused = pair("Llama")
    ids = prompts(6)["input_ids"]
    assert is_fused(fused, ids, monkeypatch)
    monkeypatch.setattr(lora, "MIN_PRODUCTS", 6 * 48 * 32 + 1)
    assert not is_fused(fused, ids, monkeypatch), "the largest of its layers has one product fewer"


def test_plain_ones_are_fused_with_checkpointing_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fused = pair("Llama")
    ids = prompts(6)["input_ids"]
    assert is_fused(fused, ids, monkeypatch)
    straight = fixtures_models.gradient(fused, fused(ids).logits.square().sum())
    fused.gradient_checkpointing_enable({"use_reentrant": False})
    fused.enable_input_require_grads()
    again = fixtures_models.gradient(fused.train(), fused(ids).logits.square().sum())
    torch.testing.assert_close(again, straight, rtol=1e-5, atol=1e-6)


def layers_of(*models: Any) -> list[Any]:
    return [next(it for it in model.modules() if isinstance(it, peft.tuners.lora.layer.Linear)) for model in models]


def test_gradient_hooks_of_the_base_are_called() -> None:
    x, found = drawn(2, 3, 32).requires_grad_(), []
    for layer in layers_of(*pair("Llama")):
        layer.base_layer.register_full_backward_hook(lambda module, inside, outside: (inside[0] * 2,))
        found.append(torch.autograd.grad(layer(x).square().sum(), x)[0])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("shape", [(0, 5, 32), (4, 0, 32), (0, 32), (32,), (2, 3, 4, 32)])
def test_any_batch_size_is_supported(shape: tuple[int, ...]) -> None:
    usual, fused = (layer(drawn(*shape)) for layer in layers_of(*pair("Llama")))
    torch.testing.assert_close(fused, usual, rtol=1e-5, atol=1e-5)


def test_gradient_per_sequence_equals_that_of_the_modules() -> None:
    found = []
    for layer in layers_of(*pair("Llama")):
        of_x = torch.func.grad(lambda x, layer=layer: layer(x).square().sum())
        found.append(torch.func.vmap(of_x)(drawn(4, 32)))
    torch.testing.assert_close(*found)


def test_a_compiler_sees_one_graph() -> None:
    (layer,) = layers_of(pair("Llama")[1])
    found = torch.compile(layer, backend="eager", fullgraph=True)(x := drawn(4, 32))
    torch.testing.assert_close(found, layer(x), rtol=1e-5, atol=1e-5)


def test_a_second_derivative_is_refused_and_not_left_out() -> None:
    mlp = mlps(mlp_pair("Llama")[1])[0]
    mlp(drawn(3, 32)).sum().backward()  # an input without gradient
    assert mlp.up_proj.lora_B["default"].weight.grad is not None
    for layer in (*layers_of(pair("Llama")[1]), mlp):
        x = drawn(4, 32).requires_grad_()
        with pytest.raises(RlmError, match="fused_lora: false"):
            torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)


def test_fused_adapter_is_saved_and_merged_like_peft(tmp_path: Any) -> None:
    usual, fused = pair("Llama")
    for name, model in (("usual", usual), ("fused", fused)):
        model.save_pretrained(tmp_path / name)
    written = [(tmp_path / name / "adapter_model.safetensors").read_bytes() for name in ("usual", "fused")]
    assert written[0] == written[1]
    ids = prompts(5)["input_ids"]
    torch.testing.assert_close(fused.merge_and_unload()(ids).logits, usual(ids).logits, rtol=1e-4, atol=1e-5)
