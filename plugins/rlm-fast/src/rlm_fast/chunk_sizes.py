"""Chunk sizes of padding-free passes, importable without torch: the memory estimate needs them too."""

from __future__ import annotations

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

    Args:
        num_parameters: Parameters of the model.
        full_length: Tokens of a micro-batch of full length, which merged ones exceed for small models only.

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
