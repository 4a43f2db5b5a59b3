"""x Wᵀ + b in float32, by the quicker of the two libraries that torch has for it on a CPU.

The usual one (MKL or another BLAS) copies W into an order of its own at every call. oneDNN is a tenth quicker with many
rows, and with few rows twice as quick, once W has been laid out for it. A call of it costs more, though, so small
products stay where they were. The terms are the same; only the order of the sum is another.
"""

from __future__ import annotations

import os

import torch
from jaxtyping import Float
from torch.nn.functional import linear

os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "48")
"""Kernels that oneDNN keeps: it makes one for every number of rows, and would keep a thousand."""
FEW_ROWS, SMALL_PRODUCT = 64, 2**22
"""Fewer rows, or products of two numbers in all, do not pay for laying W out within a call."""
SMALL_WEIGHT = 2**17
"""Smaller weights do not pay for a call, though they are laid out already."""


class Product:
    """x ↦ x Wᵀ + b for many calls with few rows each: a large W is laid out once, in a copy.

    Args:
        weight: (O, I), as it will stay.
        bias: (O,), likewise.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        self._is_laid = pays_to_lay(weight)
        if self._is_laid:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)

    def __call__(self, x: Float[torch.Tensor, "... I"]) -> Float[torch.Tensor, "... O"]:
        """No gradient flows."""
        return (_onednn if self._is_laid else linear)(x, self.weight, self.bias)


def product(
    x: Float[torch.Tensor, "N I"],
    weight: Float[torch.Tensor, "O I"],
    bias: Float[torch.Tensor, "O"] | None = None,  # noqa: F821
) -> Float[torch.Tensor, "N O"]:
    """x Wᵀ + b, once. No gradient flows."""
    many = len(x) >= FEW_ROWS and len(x) * weight.numel() >= SMALL_PRODUCT
    return (_onednn if many and _is_onednns(weight) else linear)(x, weight, bias)


def pays_to_lay(weight: torch.Tensor) -> bool:
    """Whether a `Product` makes a copy of its weight. One on the meta device counts as if it were on this CPU."""
    return weight.numel() >= SMALL_WEIGHT and _is_onednns(weight)


def _is_onednns(weight: torch.Tensor) -> bool:
    library = torch.backends.mkldnn
    if torch.compiler.is_compiling() or weight.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    if not library.is_available() or not library.enabled:  # type: ignore[attr-defined]
        return False
    return weight.device.type == "cpu" or (weight.is_meta and not torch.accelerator.is_available())


def _onednn(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]
