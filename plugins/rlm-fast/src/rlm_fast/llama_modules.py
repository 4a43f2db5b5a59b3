"""Modules of a Llama-type decoder, taken from a transformers model.

No list of model families is kept. A model is supported if it has these submodules and no others. Each must
compute what its class does, and no hook may expect a call of one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from typing import Any

import torch

from rlm_fast.cpu_linear import PackedLinear, fast_linear, write_linear
from rlm_fast.merged_lora import is_copied, merged_weight
from rlm_fast.plain_linear import adapters, base_of, is_alone, is_cast, output_first
from rlm_plugins.models.adapters import causal_model

SUBMODULES = {
    "model": {"model", "lm_head"},
    "decoder": {"embed_tokens", "layers", "norm", "rotary_emb"},
    "layer": {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"},
    "attention": {"q_proj", "k_proj", "v_proj", "o_proj"},
    "mlp": {"gate_proj", "up_proj", "down_proj", "act_fn"},
}
HEAD_NORMS = ("q_norm", "k_norm")
"""Optional submodules of attention."""
CAPTURING = "transformers.utils.output_capturing"
"""Module whose hooks only act in calls that request hidden states."""


class UnsupportedModel(Exception):
    """Raised if a model is no plain Llama-type decoder; all functions of this file raise it."""


def decoder_and_head(model: Any) -> tuple[Any, Any]:
    """Return the decoder and the language head of a Llama-type model.

    Raises:
        UnsupportedModel: The model is of another type, under autocast, or cast by accelerate.
    """
    base = check_submodules(causal_model(check_hooks(model)), "model")
    if torch.is_autocast_enabled(base.device.type) or is_cast(base):
        raise UnsupportedModel
    return check_submodules(base.model, "decoder"), base.lm_head


def check_submodules(module: Any, kind: str, optional: Set[str] = frozenset()) -> Any:
    """Return `module` if it has exactly the submodules of its kind, besides `optional` ones, and no parameters."""
    names = {name for name, _ in module.named_children()}
    if names - optional != SUBMODULES[kind] or module._parameters:
        raise UnsupportedModel
    # TRL patches the forward of the whole model, for log-probs only.
    return check_hooks(module) if kind == "model" else check_forward(module)


def check_hooks(module: Any) -> Any:
    """Return `module` if no hook expects it to be called; raise `UnsupportedModel` otherwise."""
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    if any(getattr(hook, "__module__", None) != CAPTURING and not _is_for_gradients(hook) for hook in hooks):
        raise UnsupportedModel
    return module


def _is_for_gradients(hook: Any) -> bool:
    """Return True if a hook only makes embeddings require gradients, as gradient checkpointing installs it."""
    package = (getattr(hook, "__module__", None) or "").partition(".")[0]
    name = getattr(hook, "__name__", "")
    return package in ("transformers", "peft", "trl") and name.startswith("make_inputs_require_grad")


def check_forward(module: Any) -> Any:
    """Return `module` if its forward is unpatched and no hook expects a call; raise `UnsupportedModel` otherwise."""
    if "forward" in vars(module):
        raise UnsupportedModel
    return check_hooks(module)


def embedding_weight(module: Any) -> torch.Tensor:
    """Return the weight of a plain embedding; an adapter or a trained copy of it is unsupported."""
    if type(check_forward(module)) is not torch.nn.Embedding:
        raise UnsupportedModel
    return module.weight


class Norm:
    """RMSNorm in half as many kernel calls as the module: √D w x / √(|x|² + D ε).

    Args:
        module: An RMSNorm of any model family, not wrapped.
    """

    def __init__(self, module: Any) -> None:
        if "variance_epsilon" not in vars(check_forward(module)) or module._parameters.keys() != {"weight"}:
            raise UnsupportedModel
        size = module.weight.shape[-1]
        self._weight = module.weight.detach() * math.sqrt(size)
        self._epsilon = self._weight.new_tensor(math.sqrt(size * module.variance_epsilon))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the normalized input (…, D), without gradient."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x.div(length.hypot_(self._epsilon)).mul_(self._weight)


class InPlaceLinear:
    """x ↦ x Wᵀ + b + Σ s (x Aᵀ) Bᵀ of linear layers with the same input, with their weights in place.

    Args:
        *layers: Layers for which `is_alone` holds; their outputs are concatenated.
    """

    def __init__(self, *layers: Any) -> None:
        bases = [base_of(layer) for layer in layers]
        self._products = [(output_first(base, base.weight.detach()), base.bias) for base in bases]
        pairs = [
            (index, layer.lora_A[name].weight.detach(), layer.lora_B[name].weight.detach().T, layer.scaling[name])
            for index, (layer, base) in enumerate(zip(layers, bases, strict=True))
            for name in (adapters(layer) if base is not layer else ())
        ]
        # One thin product for all adapters: each call has overhead.
        self._down = torch.cat([a for _, a, _, _ in pairs]) if pairs else None
        self._up = [(index, len(a), b, scale) for index, a, b, scale in pairs]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the outputs (L, O) for the input (L, I), without gradient."""
        sizes = [len(weight) for weight, _ in self._products]
        output = x.new_empty(len(x), sum(sizes))
        pieces = output.split(sizes, -1)
        for piece, (weight, bias) in zip(pieces, self._products, strict=True):
            write_linear(piece, x, weight, bias)
        if self._down is not None:
            hidden = fast_linear(x, self._down).split([rank for _, rank, _, _ in self._up], -1)
            for u, (index, _, b, scale) in zip(hidden, self._up, strict=True):
                pieces[index].addmm_(u, b, alpha=scale)
        return output


def fused_linear(*layers: Any, merge: bool = True) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return one function for linear layers with the same input in float32; outputs are concatenated.

    Args:
        *layers: Linear layers, with adapters or not.
        merge: Copy weights: adapters are merged and large weights packed. The layers become a single product if each of
            them has a copied weight in any case. False: weights are used in place, and adapters beside them.
    """
    if not all(is_alone(check_hooks(layer)) for layer in layers):
        raise UnsupportedModel
    bases = [base_of(layer) for layer in layers]
    biases = [base.bias for base in bases if base.bias is not None]
    if any(base.weight.dtype != torch.float32 for base in bases) or len(biases) not in (0, len(bases)):
        raise UnsupportedModel
    if not merge:
        return InPlaceLinear(*layers)
    # Joining layers whose weights are used in place would cost a copy of each.
    if len(layers) > 1 and all(is_copied(layer) for layer in layers):
        weights = [output_first(base, base.weight) for base in bases]
        sizes = [len(weight) for weight in weights]
        joined = weights[0].new_empty(sum(sizes), weights[0].shape[1])
        for layer, piece in zip(layers, joined.split(sizes), strict=True):
            merged_weight(layer, piece)
        return PackedLinear(joined, torch.cat(biases) if biases else None)
    separate = [PackedLinear(merged_weight(layer), base.bias) for layer, base in zip(layers, bases, strict=True)]
    if len(separate) == 1:
        return separate[0]
    return lambda x: torch.cat([linear(x) for linear in separate], -1)
