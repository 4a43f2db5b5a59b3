"""Threads of small attention calls.

PyTorch divides an attention call among all threads, however small it is. With two threads, a call of 32 sequences over
8 tokens takes two to five times as long as with one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

MIN_PRODUCTS = 2**22
"""Multiplications from which several threads are faster."""


@contextmanager
def threads_for(query: torch.Tensor, tokens: int) -> Iterator[None]:
    """Use one thread for a small attention call inside the context.

    Args:
        query: Queries of all heads, in any shape.
        tokens: Keys that each of them attends to.
    """
    total = torch.get_num_threads()
    if total == 1 or query.device.type != "cpu" or 2 * query.numel() * tokens >= MIN_PRODUCTS:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(total)
