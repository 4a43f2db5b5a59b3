"""Threads of small calls.

PyTorch and its libraries divide most calls among all threads, however small they are. On two threads a call with few
multiplications is no faster than on one, and costs twice the CPU time. Many small attention calls are even several
times slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

MIN_PRODUCTS = 2**22
"""Multiplications from which several threads are faster."""


@contextmanager
def threads_for(products: int) -> Iterator[None]:
    """Use one thread inside the context if a call has few multiplications; has no effect on calls of a GPU."""
    total = torch.get_num_threads() if products < MIN_PRODUCTS else 1
    if total == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(total)
