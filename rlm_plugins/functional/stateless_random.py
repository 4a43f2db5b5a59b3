"""A counter-based random number generator: equal on every machine, on every rank, after every resume."""

from __future__ import annotations

from jaxtyping import Float

from rlm_plugins.lazy import torch


def uniform(
    key: int, rows: int, columns: int, device: torch.device | None = None
) -> Float[torch.Tensor, "rows columns"]:
    """Return pseudo-random numbers in [0, 1), each a pure function of key, row and column.

    More rows or more columns do not change the others.

    >>> bool((uniform(7, 3, 9)[:2, :4] == uniform(7, 2, 4)).all())
    True
    >>> round(uniform(7, 100, 100).mean().item(), 2)
    0.5
    """
    seed = _hash(torch.tensor(key + 1, device=device))
    row = _hash(seed + torch.arange(rows, device=device)).unsqueeze(1)
    return _hash(row + torch.arange(columns, device=device)).double() / 2.0**32


def _hash(x: torch.Tensor) -> torch.Tensor:
    """Hash `x` to 32 bits: multiply and xor-shift, three times (no product overflows int64)."""
    x = x & 0xFFFFFFFF
    for _ in range(3):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return x ^ (x >> 16)
