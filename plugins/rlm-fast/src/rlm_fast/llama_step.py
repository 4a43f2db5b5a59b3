"""One-token forward of Llama-type decoders, with a third of the kernel calls of the modules.

    h = x + O · attention(RoPE(Q n), RoPE(K n), V n),    n = norm(x)
    y = h + D · (act(G m) ⊙ U m),                        m = norm(h)

No list of model families is kept. A model is supported if it has these submodules and no others. Each must
compute what its class does, and no hook may expect a call of one of them. Its logits must agree, checked once. Others
are called module by module.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Set
from functools import partial
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F  # noqa: N812
from jaxtyping import Float, Int
from transformers import DynamicCache

from rlm_fast.kv_cache import PromptTree, preallocate
from rlm_fast.linear_layers import (
    PackedLinear,
    adapters,
    base_of,
    fast_linear,
    is_alone,
    is_cast,
    is_copied,
    merged_weight,
    output_first,
    write_linear,
)
from rlm_fast.packed_forward import MODEL_ERRORS
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
    """Return the decoder and the language head of a Llama-type model."""
    base = check_submodules(causal_model(check_hooks(model)), "model")
    if is_cast(base):
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
    """RMSNorm in half as many kernel calls as the module, in float32: √D w x / √(|x|² + D ε)."""

    def __init__(self, module: Any) -> None:
        if "variance_epsilon" not in vars(check_forward(module)) or module._parameters.keys() != {"weight"}:
            raise UnsupportedModel
        size = module.weight.shape[-1]
        self._weight = module.weight.detach().float() * math.sqrt(size)
        self._epsilon = self._weight.new_tensor(math.sqrt(size * module.variance_epsilon))

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return the normalized input (…, D), without gradient."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        return x.div(length.hypot_(self._epsilon)).mul_(self._weight).to(x.dtype)


class InPlaceLinear:
    """x ↦ x Wᵀ + b + Σ s (x Aᵀ) Bᵀ of linear layers with the same input, with their weights in place."""

    def __init__(self, *layers: Any) -> None:
        bases = [base_of(layer) for layer in layers]
        self._products = [(output_first(base, base.weight.detach()), base.bias) for base in bases]
        dtype = bases[0].weight.dtype
        pairs = [
            (index, *(x[name].weight.detach().to(dtype) for x in (layer.lora_A, layer.lora_B)), layer.scaling[name])
            for index, (layer, base) in enumerate(zip(layers, bases, strict=True))
            for name in (adapters(layer) if base is not layer else ())
        ]
        # One thin product for all adapters: each call has overhead.
        self._down = torch.cat([a for _, a, _, _ in pairs]) if pairs else None
        self._up = [(index, len(a), b.T, scale) for index, a, b, scale in pairs]

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
    """Return one function for linear layers with the same input and dtype; outputs are concatenated."""
    if not all(is_alone(check_hooks(layer)) for layer in layers):
        raise UnsupportedModel
    bases = [base_of(layer) for layer in layers]
    biases = [base.bias for base in bases if base.bias is not None]
    dtypes = {base.weight.dtype for base in bases}
    if dtypes not in ({torch.float32}, {torch.bfloat16}) or len(biases) not in (0, len(bases)):
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


class State(Protocol):
    """Keys and values of earlier tokens: `KVState` in decoding, `TreeState` in the prefill."""

    position: torch.Tensor

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Add the keys and values of the tokens to a layer and return the attention output."""

    def advance(self) -> None:
        """Move on by one token, after all layers."""


class LlamaStep:
    """Forward pass of one token per sequence, with a snapshot of the weights.

    Raises:
        UnsupportedModel: The model is no plain Llama-type decoder.
    """

    def __init__(self, model: Any, merge: bool = True) -> None:
        decoder, head = decoder_and_head(model)
        self._embedding, self._rotary = embedding_weight(decoder.embed_tokens), check_forward(decoder.rotary_emb)
        self._layers = [StepLayer(layer, index, merge) for index, layer in enumerate(decoder.layers)]
        self._norm, self._head = Norm(decoder.norm), fused_linear(head, merge=merge)

    def __call__(
        self,
        token: Int[torch.Tensor, "L"],  # noqa: F821
        state: State,
        predicting: Int[torch.Tensor, "N"] | None = None,  # noqa: F821
    ) -> Float[torch.Tensor, "N V"]:
        """Return logits of the token after these."""
        x = F.embedding(token, self._embedding)
        cos, sin = self._rotary(x, state.position)
        half = sin.shape[-1] // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)  # x₁ gets -x₂ sin, x₂ gets x₁ sin
        for layer in self._layers:
            x = layer(x, cos, sin, state)
        state.advance()
        return self._head(self._norm(x if predicting is None else x[predicting])).float()


class StepLayer:
    """One decoder layer of `LlamaStep`."""

    def __init__(self, layer: Any, index: int, merge: bool) -> None:
        attention = check_submodules(check_submodules(layer, "layer").self_attn, "attention", {*HEAD_NORMS})
        mlp = check_submodules(layer.mlp, "mlp")
        linear = partial(fused_linear, merge=merge)
        self.input_norm, self.mlp_norm = Norm(layer.input_layernorm), Norm(layer.post_attention_layernorm)
        self.qkv = linear(attention.q_proj, attention.k_proj, attention.v_proj)
        self.out = linear(attention.o_proj)
        self.head_norms = [Norm(getattr(attention, name)) for name in HEAD_NORMS if hasattr(attention, name)]
        self.index, self.scale, self.head_dim = index, attention.scaling, attention.head_dim
        self.key_heads = attention.k_proj.out_features // self.head_dim
        self.gate_up, self.down = linear(mlp.gate_proj, mlp.up_proj), linear(mlp.down_proj)
        self.act = check_forward(mlp.act_fn)

    def __call__(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, state: State) -> torch.Tensor:
        """Return y (L, D) from x (L, D)."""
        h = x + self._attention(self.input_norm(x), cos, sin, state)
        gate, up = self.gate_up(self.mlp_norm(h)).chunk(2, -1)
        return h + self.down(self.act(gate) * up)

    def _attention(self, n: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, state: State) -> torch.Tensor:
        batch_size, d, key_heads = n.shape[0], self.head_dim, self.key_heads
        heads, v = self.qkv(n).view(batch_size, -1, d).tensor_split([-key_heads], 1)
        if self.head_norms:
            pieces = zip(heads.tensor_split([-key_heads], 1), self.head_norms, strict=True)
            heads = torch.cat([norm(x) for x, norm in pieces], 1)
        heads = torch.addcmul(heads * cos, heads.roll(d // 2, -1), sin)
        q, k = heads.tensor_split([-key_heads], 1)
        # Query heads with the same key head take the token dimension, so keys need not be repeated.
        query = q.reshape(batch_size, key_heads, -1, d)
        output = state.attend(self.index, query, k.unsqueeze(2), v.unsqueeze(2), self.scale)
        return self.out(output.reshape(batch_size, -1))


logger = logging.getLogger(__name__)
_AGREES: WeakKeyDictionary[Any, dict[bool, bool]] = WeakKeyDictionary()
"""Result per model, with and without copied weights."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2**-5}
"""Largest difference of a logit, as a share of the largest logit."""


def verified_step(model: Any, *, merge: bool = True) -> LlamaStep | None:
    """Return the step of a Llama-type model whose logits agree, or None. Leaves the RNG state as it is."""
    results = _AGREES.setdefault(model, {})
    if not results.get(merge, True):
        return None
    try:
        step = LlamaStep(model, merge)
    except UnsupportedModel:
        return None
    if merge not in results:
        results[merge] = _agrees(step, causal_model(model))
        if not results[merge]:
            logger.warning("decoding calls the model module by module: its logits differ from a Llama-type forward")
    return step if results[merge] else None


@torch.no_grad()
def _agrees(step: LlamaStep, model: Any) -> bool:
    """Compare the logits after four tokens and after one more, for three sequences that start alike, one padded."""
    ids = torch.arange(3 * 5, device=model.device).view(3, 5) * 7 % model.config.get_text_config().vocab_size
    ids[1, 2:4], ids[2, 0] = ids[0, :2], ids[0, 0]
    attention_mask = torch.ones_like(ids)
    attention_mask[1, :2] = 0
    position_ids = (attention_mask.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False).logits
    expected = logits[:, -2:]

    cache = DynamicCache(config=model.config)
    preallocate(cache)
    prompts = [ids[0, :4].tolist(), ids[1, 2:4].tolist(), ids[2, :4].tolist()]
    try:
        tree = PromptTree(prompts, ids.device, min_saved=1)
        first, state = tree.prefill(step, cache, torch.arange(len(ids), device=ids.device))
        actual = torch.stack([first, step(ids[:, -1], state)], 1)
    except MODEL_ERRORS:
        return False
    largest = TOLERANCE[model.dtype] * expected.abs().max()
    return expected.shape == actual.shape and bool((expected - actual).abs().max() <= largest)
