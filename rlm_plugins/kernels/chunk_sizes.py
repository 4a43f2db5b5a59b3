"""Chunk sizes of padding-free passes, importable without torch: the memory estimate needs them too."""

from __future__ import annotations

LOGITS, LOGITS_GPU = 2**21, 2**27
"""Most logits in memory at a time; a GPU needs larger chunks to be busy."""
TOKENS = 64
"""Least tokens of a chunk of logits: a product with fewer spends its time on loading a large language head."""
PAIRS, PAIRS_GPU = 2**12, 2**18
"""Most masked pairs of tokens in one attention call, before two calls are faster than one."""

PRODUCTS = 2**30
"""Most products of a token and a parameter in merged micro-batches: below it call overhead matters on a CPU."""


def max_logits(vocab_size: int, *, gpu: bool) -> int:
    """Return how many logits are in memory at a time at most.

    >>> max_logits(151_936, gpu=False) // 151_936
    64
    """
    return max(LOGITS_GPU if gpu else LOGITS, TOKENS * vocab_size)
