"""Numbers that look random and are not: the same on every machine, on every process, after every resume."""

from __future__ import annotations

from jaxtyping import Float

from rlm_plugins.lazy import torch


def uniform(
    key: int, rows: int, columns: int, device: torch.device | None = None
) -> Float[torch.Tensor, "rows columns"]:
    """A number in [0, 1) for every place of a table, a pure function of key, row and column.

    More rows or more columns leave the others as they are.

    >>> bool((uniform(7, 3, 9)[:2, :4] == uniform(7, 2, 4)).all())
    True
    >>> round(uniform(7, 100, 100).mean().item(), 2)
    0.5
    """
    seed = _mixed(torch.tensor(key + 1, device=device))
    row = _mixed(seed + torch.arange(rows, device=device)).unsqueeze(1)
    return _mixed(row + torch.arange(columns, device=device)).double() / 2.0**32


def _mixed(x: torch.Tensor) -> torch.Tensor:
    """32 bits, each of which depends on every bit of `x`: multiply and fold, three times (no product leaves int64)."""
    x = x & 0xFFFFFFFF
    for _ in range(3):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return x ^ (x >> 16)
