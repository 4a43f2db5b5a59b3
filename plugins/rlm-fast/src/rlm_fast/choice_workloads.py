"""Small workloads on which the sizes of `choices.py` are timed."""

from __future__ import annotations

import torch

from rlm_fast.prefix_attention import SharedPrefix, attend, attend_all, sharing_pays
from rlm_fast.sampling import argmax
from rlm_fast.tuning_workloads import Work, numbers


def token_argmax() -> Work:
    """Return the argmax over the vocabulary of 16 sequences."""
    scores = numbers(16, 2**15)
    return lambda: [argmax(scores)]


def shared_prefix() -> Work:
    """Return the attention of 16 sequences of two prompts, for prompts of four lengths, shared or copied."""
    sequences, heads, d = 16, 3, 64
    query, own = numbers(sequences, heads, 3, d), numbers(sequences, heads, 8, d)
    prefix_of = torch.arange(sequences) // 8
    pieces: list[tuple[SharedPrefix | None, torch.Tensor]] = []
    for tokens in (8, 24, 72, 216):
        keys = numbers(2, heads, tokens, d)
        if sharing_pays(sequences - 2, keys):
            pieces.append((SharedPrefix([(keys, keys)], prefix_of, None), own))
        else:
            pieces.append((None, torch.cat([keys[prefix_of], own], 2)))

    def attention(prefix: SharedPrefix | None, keys: torch.Tensor) -> torch.Tensor:
        if prefix is None:
            return attend(query.transpose(1, 2), keys, keys, None, 0.125)[0].transpose(1, 2)
        return attend_all([prefix], 0, query, keys, keys, None, 0.125)

    return lambda: [attention(*piece) for piece in pieces]
