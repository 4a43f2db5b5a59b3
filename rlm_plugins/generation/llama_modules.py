"""What a decoder of Llama's kind is made of, taken from one that was made by transformers.

Nobody lists the models of this kind: they have these pieces and no others, each does what its class does, and nobody
waits for one of them to be called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from typing import Any

import torch

from rlm_plugins.generation.merged_lora import is_copied, summed
from rlm_plugins.kernels.cpu_linear import Product
from rlm_plugins.kernels.plain_linear import base_of, is_alone, is_cast, upright
from rlm_plugins.packing.forward import causal_model

PIECES = {
    "model": {"model", "lm_head"},
    "decoder": {"embed_tokens", "layers", "norm", "rotary_emb"},
    "layer": {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"},
    "attention": {"q_proj", "k_proj", "v_proj", "o_proj"},
    "mlp": {"gate_proj", "up_proj", "down_proj", "act_fn"},
}
OF_HEADS = ("q_norm", "k_norm")
"""What attention may have beside them."""
CAPTURING = "transformers.utils.output_capturing"
"""Its hooks do nothing unless a call asks for hidden states."""


class Other(Exception):
    """A model is of another kind."""


def parts_of(model: Any) -> tuple[Any, Any]:
    """The decoder and the head of a model.

    Raises:
        Other: It is of another kind; so say all functions here.
    """
    whole = made_of(causal_model(unwatched(model)), "model")
    if torch.is_autocast_enabled(whole.device.type) or is_cast(whole):
        raise Other
    return made_of(whole.model, "decoder"), whole.lm_head


def made_of(module: Any, kind: str, may: Set[str] = frozenset()) -> Any:
    """The module, once it has the pieces of its kind and nothing else, but what it may have."""
    found = {name for name, _ in module.named_children()}
    if found - may != PIECES[kind] or module._parameters:
        raise Other
    return unwatched(module) if kind == "model" else plain(module)  # TRL gives a model a forward, for reading rows only


def unwatched(module: Any) -> Any:
    """The module, once no hook waits for it to be called."""
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    if any(getattr(hook, "__module__", None) != CAPTURING and not _is_for_gradients(hook) for hook in hooks):
        raise Other
    return module


def _is_for_gradients(hook: Any) -> bool:
    """Whether a hook only lets gradients into frozen words, as it does wherever there is gradient checkpointing."""
    home = (getattr(hook, "__module__", None) or "").partition(".")[0]
    name = getattr(hook, "__name__", "")
    return home in ("transformers", "peft", "trl") and name.startswith("make_inputs_require_grad")


def plain(module: Any) -> Any:
    """The module, once it does what its class does."""
    if "forward" in vars(module):
        raise Other
    return unwatched(module)


def words(module: Any) -> torch.Tensor:
    """Of a plain embedding: one with an adapter, or with a copy of it that is trained, may be another tomorrow."""
    if type(plain(module)) is not torch.nn.Embedding:
        raise Other
    return module.weight


class Norm:
    """RMSNorm, in half the calls that torch makes of it: √D w x / √(|x|² + D ε).

    Args:
        module: Some family's, and no wrapper around one.
    """

    def __init__(self, module: Any) -> None:
        if "variance_epsilon" not in vars(plain(module)) or module._parameters.keys() != {"weight"}:
            raise Other
        size = module.weight.shape[-1]
        self._weight = module.weight.detach() * math.sqrt(size)
        self._least = self._weight.new_tensor(math.sqrt(size * module.variance_epsilon))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """(…, D) from (…, D). No gradient flows."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        return x.div(length.hypot_(self._least)).mul_(self._weight)


def product_of(*layers: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Of linear layers in float32 that read the same, one after the other; an adapter is added to its base.

    It is a single product where all of them have copies anyway.
    """
    if not all(is_alone(unwatched(layer)) for layer in layers):
        raise Other
    bases = [base_of(layer) for layer in layers]
    biases = [base.bias for base in bases if base.bias is not None]
    if any(base.weight.dtype != torch.float32 for base in bases) or len(biases) not in (0, len(bases)):
        raise Other
    if len(layers) > 1 and all(is_copied(layer) for layer in layers):
        weights = [upright(base, base.weight) for base in bases]
        sizes = [len(weight) for weight in weights]
        whole = weights[0].new_empty(sum(sizes), weights[0].shape[1])
        for layer, rows in zip(layers, whole.split(sizes), strict=True):
            summed(layer, rows)
        return Product(whole, torch.cat(biases) if biases else None)
    apart = [Product(summed(layer), base.bias) for layer, base in zip(layers, bases, strict=True)]
    return apart[0] if len(apart) == 1 else lambda x: torch.cat([it(x) for it in apart], -1)
