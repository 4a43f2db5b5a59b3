"""Tokens of a completion that a regular expression finds, and ranks within a group."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from jaxtyping import Bool, Float, Int

from rlm_plugins.equation.statistics import Groups
from rlm_plugins.lazy import torch

ANSWER = r"<answer>(.*?)</answer>"
"""The content of an answer block; the tags stay outside."""


def span_mask(
    completion_ids: Sequence[Sequence[int]], mask: Bool[torch.Tensor, "B T"], tokenizer: Any, pattern: str
) -> Bool[torch.Tensor, "B T"]:
    """Return True for the trained tokens that overlap the last match of `pattern` in the text of their completion.

    Args:
        completion_ids: Token ids without padding.
        mask: Trained tokens.
        tokenizer: Decodes token by token.
        pattern: A regular expression; with a group, what its first group matched counts.
    """
    inside = torch.zeros_like(mask)
    for index, ids in enumerate(completion_ids):
        texts = [str(tokenizer.decode([token])) for token in ids]
        matches = list(re.finditer(pattern, "".join(texts), re.DOTALL))
        if not matches:
            continue
        start, end = matches[-1].span(1 if matches[-1].re.groups else 0)
        position = 0
        for column, text in enumerate(texts[: mask.shape[1]]):
            inside[index, column] = position < end and position + len(text) > start
            position += len(text)
    return inside & mask


def ranks(x: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"]) -> Float[torch.Tensor, "B"]:
    """Return the share of the group's other completions with a lower value; a tie counts half, a group of one 0.

    >>> ranks(torch.tensor([0.3, 0.1, 0.3, 9.0]), torch.tensor([0, 0, 0, 1])).tolist()
    [0.75, 0.0, 0.75, 0.0]
    """
    table = Groups(x, group).table
    num_peers = (~table.isnan()).sum(1, keepdim=True) - 1
    below = (table.unsqueeze(2) > table.unsqueeze(1)).sum(2)
    ties = (table.unsqueeze(2) == table.unsqueeze(1)).sum(2) - 1
    return Groups(x, group).flatten((below + 0.5 * ties) / num_peers.clamp(min=1)).clamp(min=0.0)
