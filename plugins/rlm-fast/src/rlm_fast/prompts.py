"""Distinct prompts of a batch, their tokens without padding, and their common prefix."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlm_fast.prefix_tree import common_length


def distinct_prompts(ids: torch.Tensor, attention_mask: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices of the first occurrences of each prompt (D,) and the prompt of each sequence (B,).

    Args:
        ids: (B, P) token ids.
        attention_mask: (B, P), or None without padding.

    >>> distinct_prompts(torch.tensor([[7, 8], [7, 9], [7, 8]]), None)
    (tensor([0, 1]), tensor([0, 1, 0]))
    """
    numbers: dict[tuple[int, ...], int] = {}
    first: list[int] = []
    prompt_of: list[int] = []
    # Padding belongs to the key: the pad token may also occur as a token of a prompt.
    keys = ids if attention_mask is None else torch.cat([ids, attention_mask], 1)
    for index, key in enumerate(keys.tolist()):
        number = numbers.setdefault(tuple(key), len(numbers))
        if number == len(first):
            first.append(index)
        prompt_of.append(number)
    return torch.tensor(first, device=ids.device), torch.tensor(prompt_of, device=ids.device)


def unpadded(
    ids: torch.Tensor, attention_mask: torch.Tensor | None, position_ids: torch.Tensor | None
) -> list[list[int]] | None:
    """Return prompts without padding; None if one is empty, or if positions do not count from its first token.

    Args:
        ids: (D, P) token ids, padded on the left.
        attention_mask: (D, P), or None without padding.
        position_ids: (D, P) or (1, P), as transformers prepared them; other shapes are unsupported.
    """
    mask = torch.ones_like(ids) if attention_mask is None else attention_mask
    if position_ids is None or position_ids.dim() != 2 or not mask.any(1).all():
        return None
    if ((position_ids != mask.cumsum(1) - 1) & (mask != 0)).any():
        return None
    return [prompt[is_token].tolist() for prompt, is_token in zip(ids, mask.bool(), strict=True)]


def common_tokens(prompts: Sequence[Sequence[int]]) -> int:
    """Return the length of the common prefix of all prompts; at least one token of each prompt is excluded."""
    return min(common_length(prompts), min(map(len, prompts)) - 1)
