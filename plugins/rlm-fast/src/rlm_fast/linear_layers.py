"""x Wᵀ + b in float32, by the faster of PyTorch's two CPU libraries; sizes, threads and memory of calls on a CPU.

The default (MKL or another BLAS) repacks W at each call. For many tokens oneDNN is a tenth faster with AVX512, and
slower with AVX2 (`tuning.py` measures it). For few tokens it is twice as fast once W is packed. oneDNN packs the second
factor only. So for few tokens it computes (W xᵀ)ᵀ, which packs x, and is as fast as with a packed W. Its calls have
more overhead, so small products stay with the default. Only the order of summation differs.

PyTorch divides most calls among all threads. On two threads a call with few multiplications is no faster than on one,
and costs twice the CPU time. Many small attention calls are even several times slower.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float
from peft.tuners.lora.layer import Linear
from torch.nn.functional import linear
from transformers.pytorch_utils import Conv1D

LOGITS, LOGITS_GPU = 2**21, 2**27
"""Most logits in memory at a time; a GPU needs larger chunks to be busy."""
TOKENS = 64
"""Least tokens of a chunk of logits: a product with fewer is twice as slow per token for a large language head."""
PAIRS, PAIRS_GPU = 2**12, 2**18
"""Most masked pairs of tokens in one attention call, before two calls are faster than one."""

PRODUCTS = 2**30
"""Most products of a token and a parameter in merged micro-batches: below it call overhead matters on a CPU."""
MERGED_TOKENS = 512
"""Most tokens of merged micro-batches of any model: with fewer, packing its weights takes a tenth of a pass."""


def merged_tokens(num_parameters: int, full_length: float) -> float:
    """Return the most tokens of merged micro-batches, copied keys and values included.

    >>> merged_tokens(135_000_000, 600), merged_tokens(135_000_000, 300), merged_tokens(2**20, 300)
    (512, 300, 1024.0)
    """
    return max(PRODUCTS / num_parameters, min(MERGED_TOKENS, full_length))


def chunk_tokens(tokens: int, vocab_size: int, *, gpu: bool) -> int:
    """Return the tokens whose logits are in memory at a time: chunks of about equal size.

    A chunk has at most `LOGITS` logits, unless that is fewer than `TOKENS` tokens.

    >>> chunk_tokens(199, 49_152, gpu=False), chunk_tokens(199, 151_936, gpu=False), chunk_tokens(600, 8192, gpu=False)
    (67, 67, 200)
    """
    most = max(1, (LOGITS_GPU if gpu else LOGITS) // vocab_size)
    chunks = min(-(-tokens // most), tokens // TOKENS)
    return -(-tokens // max(1, chunks))


MIN_THREADED = 2**22
"""Multiplications from which several threads are faster."""


@contextmanager
def threads_for(products: int) -> Iterator[None]:
    """Use one thread inside the context if a call has few multiplications; has no effect on calls of a GPU."""
    total = torch.get_num_threads() if products < MIN_THREADED else 1
    if total == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(total)


TRIM, MAP = -1, -3
"""Parameters of `mallopt`: free bytes at the end of the heap that are returned to the system; bytes of a mapping."""
HEAP = {"MALLOC_TRIM_THRESHOLD_": (TRIM, 2**31 - 1), "MALLOC_MMAP_THRESHOLD_": (MAP, 2**25)}
"""Environment variable of a parameter → the parameter, and its largest value."""


def keep_freed_memory() -> bool:
    """Let the process keep freed memory for its next tensors; return False without glibc.

    By default much of it returns to the system, and each page that is used again costs a fault. The maximum is the
    same. A value in the environment takes precedence.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    accepted = [mallopt(*setting) == 1 for name, setting in HEAP.items() if name not in os.environ]
    return all(accepted)


os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "48")
"""Kernels that oneDNN caches. It compiles one per number of tokens, and would keep a thousand by default."""
MIN_TOKENS, MIN_PRODUCTS = 64, 2**20
"""With fewer tokens, or fewer multiplications, packing W within a call does not pay off."""
MIN_SWAPPED, MAX_SWAPPED = 8, 64
"""Least tokens for which (W xᵀ)ᵀ is faster, and the number from which packing W within a call is."""
MIN_WEIGHT = 2**17
"""Products with smaller packed weights do not pay for the overhead of a call."""


class PackedLinear:
    """x ↦ x Wᵀ + b for many calls with few tokens each: a large W is packed once, in a copy.

    Args:
        weight: (O, I), constant from now on.
        bias: (O,), constant from now on.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self._is_packed = packing_pays(weight)
        if self._is_packed:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)

    def __call__(self, x: Float[torch.Tensor, "... I"]) -> Float[torch.Tensor, "... O"]:
        """Return x Wᵀ + b, without gradient."""
        return (_onednn if self._is_packed else linear)(x, self.weight, self.bias)


def fast_linear(
    x: Float[torch.Tensor, "N I"],
    weight: Float[torch.Tensor, "O I"],
    bias: Float[torch.Tensor, "O"] | None = None,  # noqa: F821
) -> Float[torch.Tensor, "N O"]:
    """Return x Wᵀ + b, without gradient and without a packed copy of W."""
    return _product(x, weight, bias).contiguous()


def write_linear(
    out: Float[torch.Tensor, "N O"],
    x: Float[torch.Tensor, "N I"],
    weight: Float[torch.Tensor, "O I"],
    bias: Float[torch.Tensor, "O"] | None = None,  # noqa: F821
) -> None:
    """Write `fast_linear` of the inputs to `out`, which may be some columns of a larger tensor."""
    out.copy_(_product(x, weight, bias))


def _product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return x Wᵀ + b (N, O), possibly as a transposed view."""
    with threads_for(len(x) * weight.numel()):
        return _by_library(x, weight, bias)


def _by_library(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    tokens = len(x)
    if tokens * weight.numel() < MIN_PRODUCTS or not _supports_onednn(weight):
        return linear(x, weight, bias)
    if MIN_SWAPPED <= tokens < MAX_SWAPPED and weight.is_contiguous():
        y = _onednn(weight, x, None).T
        return y if bias is None else y.add_(bias)
    return (_onednn if tokens >= MIN_TOKENS else linear)(x, weight, bias)


def sum_of_products(u: Float[torch.Tensor, "N R"], g: Float[torch.Tensor, "N I"]) -> Float[torch.Tensor, "R I"]:
    """Return uᵀ g, the gradient of a small weight."""
    with threads_for(u.numel() * g.shape[1]):
        return u.T @ g


def packing_pays(weight: torch.Tensor) -> bool:
    """Return True if `PackedLinear` copies its weight. A weight on the meta device counts as one on this CPU."""
    return weight.numel() >= MIN_WEIGHT and _supports_onednn(weight)


def _supports_onednn(weight: torch.Tensor) -> bool:
    """Return True if oneDNN computes float32 products with this weight."""
    library = torch.backends.mkldnn
    if torch.compiler.is_compiling() or weight.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    if not library.is_available() or not library.enabled:  # type: ignore[attr-defined]
        return False
    # Estimates on the meta device count the copies that this machine would make.
    return weight.device.type == "cpu" or (weight.is_meta and not torch.accelerator.is_available())


def _onednn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]


LORA: set[type] = {Linear}
"""Classes of LoRA layers that compute what PEFT's `Linear` does; `fused_layers.py` adds its own."""


def is_alone(layer: Any) -> bool:
    """Return True if one product, with the adapter merged if there is one, gives the layer's output."""
    return is_plain(layer) or is_mergeable(layer)


def is_mergeable(layer: Any) -> bool:
    """Return True if the adapter of a LoRA layer can be merged into a copy of its base, in that dtype."""
    return is_sum(layer) and product_dtype(layer.base_layer.weight) == layer.base_layer.weight.dtype


def is_sum(layer: Any) -> bool:
    """Return True if a module is a LoRA layer, in float32 or bfloat16, whose output is a sum of plain products."""
    # Exact type: a subclass may compute anything.
    if type(layer) not in LORA or layer.disable_adapters or layer.merged or "forward" in vars(layer):
        return False
    active = adapters(layer)
    if not active or any(name in layer.lora_variant or layer.lora_bias[name] for name in active):
        return False
    if any(_is_modified(layer, name) for name in active):
        return False
    weights = (side[name].weight for side in (layer.lora_A, layer.lora_B) for name in active)
    dtypes = {product_dtype(x) for x in (layer.base_layer.weight, *weights)}
    return is_plain(layer.base_layer) and dtypes <= {torch.float32, torch.bfloat16}


def product_dtype(x: torch.Tensor) -> torch.dtype:
    """Return the dtype in which products with a weight are computed."""
    is_autocast = x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)
    return torch.get_autocast_dtype(x.device.type) if is_autocast else x.dtype


def adapters(layer: Any) -> list[str]:
    """Return the names of the active adapters of a LoRA layer."""
    return [name for name in layer.active_adapters if name in layer.lora_A]


def _is_modified(layer: Any, name: str) -> bool:
    """Return True if an adapter has dropout, hooks or a patched forward."""
    dropout = layer.lora_dropout[name]
    is_on = dropout.training and not isinstance(dropout, torch.nn.Identity)
    return is_on or any(is_patched(x[name]) for x in (layer.lora_dropout, layer.lora_A, layer.lora_B))


def is_plain(layer: Any) -> bool:
    """Return True if a module is a linear layer without quantization, wrapper, hooks or patched forward."""
    return type(layer) in (torch.nn.Linear, Conv1D) and not is_patched(layer)


def is_patched(module: Any) -> bool:
    """Return True if a module has hooks or a patched forward."""
    forward = module._forward_pre_hooks or module._forward_hooks or "forward" in vars(module)
    return bool(forward or module._backward_pre_hooks or module._backward_hooks)


def output_first(base: Any, weight: torch.Tensor) -> torch.Tensor:
    """Return the weight of a plain layer as (O, I); a Conv1D holds (I, O)."""
    return weight if isinstance(base, torch.nn.Linear) else weight.T


def base_of(layer: Any) -> Any:
    """Return the linear layer that a LoRA layer wraps; any other layer itself."""
    return getattr(layer, "base_layer", layer)


def is_cast(model: Any) -> bool:
    """Return True if autocast, by accelerate or by a context, casts the weights of a model at each call."""
    weight = next(model.parameters())
    is_autocast = "_original_forward" in vars(model) or product_dtype(weight) != weight.dtype
    return weight.dtype != torch.bfloat16 and is_autocast


MERGE_TOKENS = 32
"""Least tokens of a completion for which copies pay: they save the libraries from packing weights at each token."""


def merging_pays(config: Any) -> bool:
    """Return True if completions may be long enough for copies; `config` is a `GenerationConfig` of transformers."""
    return (config.max_new_tokens or config.max_length or 0) >= MERGE_TOKENS


@contextmanager
def merged(model: Any) -> Iterator[None]:
    """Compute every layer with a mergeable adapter as one product inside the context.

    Large layers without an adapter are replaced too, if packing their weight pays off.
    """
    layers = _copied_layers(model)
    try:
        for layer in layers:
            layer.forward = PackedLinear(merged_weight(layer), base_of(layer).bias)
        yield
    finally:
        for layer in layers:
            vars(layer).pop("forward", None)


def merged_weight(layer: Any, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return the weight (O, I) of a linear layer with its adapter merged.

    Args:
        layer: A layer for which `is_alone` holds.
        out: (O, I) buffer for the result; None: a layer without adapter returns its own weight.
    """
    base = base_of(layer)
    weight = output_first(base, base.weight.detach())
    dtype, buffer = weight.dtype, out if weight.dtype == torch.float32 else None
    for name in adapters(layer) if base is not layer else ():
        a, b = (side[name].weight.detach().float() for side in (layer.lora_A, layer.lora_B))
        weight = torch.addmm(weight.float(), b, a, alpha=layer.scaling[name], out=buffer)
    weight = weight.to(dtype)  # rounded once
    return weight if out is None or weight is out else out.copy_(weight)


def is_copied(layer: Any) -> bool:
    """Return True if the merged or packed weight of a layer needs memory of its own."""
    return is_mergeable(layer) or packing_pays(layer.weight)


def copied_bytes(model: Any) -> int:
    """Return the bytes of the copies that `merged` makes."""
    weights = [base_of(layer).weight for layer in _copied_layers(model)]
    return sum(weight.numel() * weight.element_size() for weight in weights)


def _copied_layers(model: Any) -> list[Any]:
    """Return the layers that `merged` replaces."""
    if is_cast(model):
        return []
    alone = [layer for layer in model.modules() if is_alone(layer)]
    # The base inside a LoRA layer is never called while the layer is replaced.
    bases = {base_of(layer) for layer in alone if base_of(layer) is not layer}
    return [layer for layer in alone if layer not in bases and is_copied(layer)]
