"""x Wᵀ + b in float32, by the faster of PyTorch's two CPU libraries.

The default (MKL or another BLAS) repacks W at each call. oneDNN is about a tenth faster for many tokens, and twice as
fast for few tokens once W is packed. oneDNN packs the second factor only. So for few tokens it computes (W xᵀ)ᵀ, which
packs x, and is as fast as with a packed W. Its calls have more overhead, so small products stay with the default. Only
the order of summation differs.
"""

from __future__ import annotations

import os

import torch
from jaxtyping import Float
from torch.nn.functional import linear

from rlm_fast.small_calls import threads_for

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
