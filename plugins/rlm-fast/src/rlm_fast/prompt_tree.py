"""Distinct prompts of a batch, and their prefill as a prefix tree: shared tokens once, without padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from jaxtyping import Float, Int

from rlm_fast.kv_cache import KVState
from rlm_fast.prefix_attention import KeysValues
from rlm_fast.tree_attention import TreeAttention, ancestors, common_length, prefix_tree


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


@dataclass
class TreeState:
    """State of a pass over the tokens of all prompts, in place of `KVState`.

    Args:
        attention: Attention calls over the tree.
        position: (T, 1) position of each token.

    Attributes:
        kv: Keys and values (1, heads, T, d) of the layers so far.
    """

    attention: TreeAttention
    position: Int[torch.Tensor, "T 1"]
    kv: list[KeysValues] = field(default_factory=list)

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """Keep the keys and values of a layer and return its attention output; shapes as in `KVState.attend`."""
        keys, values = (x.squeeze(2).transpose(0, 1).unsqueeze(0) for x in (key, value))
        self.kv.append((keys, values))
        heads = query.flatten(1, 2).transpose(0, 1).unsqueeze(0)
        return self.attention(heads, keys, values, scale).view(query.shape)

    def advance(self) -> None:
        """Do nothing: each token has its position."""


class PromptTree:
    """Distinct prompts as one sequence of tokens."""

    def __init__(self, prompts: Sequence[Sequence[int]], device: torch.device, min_saved: int) -> None:
        segments, last = prefix_tree(prompts, min_saved=min_saved)
        sizes = [segment.stop - segment.start for segment in segments]
        parents = [segment.parent for segment in segments]
        starts = [0, *accumulate(sizes)]
        tokens = [token for x in segments for token in prompts[x.sequence][x.start : x.stop]]
        positions = [position for x in segments for position in range(x.start, x.stop)]
        paths = [[*ancestors(index, parents)[::-1], index] for index in last]
        self._places = [[place for i in path for place in range(starts[i], starts[i + 1])] for path in paths]
        self._tokens = torch.tensor(tokens, device=device)
        self._position = torch.tensor(positions, device=device).unsqueeze(1)
        self._attention = TreeAttention.of_tree(sizes, parents, device)
        self._common = common_tokens(prompts) if parents.count(-1) == 1 else 0

    def prefill(self, step: Any, cache: Any, prompt_of: torch.Tensor) -> tuple[Float[torch.Tensor, "D V"], KVState]:
        """Compute all prompts and return the logits of the next token of each, and the state for decoding.

        Args:
            step: `LlamaStep` of the model.
            cache: KV cache with empty preallocated layers, which get the keys and values of the prompts.
            prompt_of: (L,) index of the distinct prompt of each sequence.
        """
        state = TreeState(self._attention, self._position)
        ends = self._tokens.new_tensor([places[-1] for places in self._places])
        logits = step(self._tokens, state, ends)
        width = max(map(len, self._places)) - self._common
        rests = [places[self._common :] for places in self._places]
        index = self._tokens.new_tensor([[0] * (width - len(rest)) + rest for rest in rests])
        lengths = self._tokens.new_tensor([len(rest) for rest in rests])
        common: list[KeysValues] = []
        for layer in cache.layers:
            kv = state.kv.pop(0)
            if self._common:
                common.append(tuple(x[:, :, : self._common].contiguous() for x in kv))  # type: ignore[arg-type]
            layer.update(*(x[0][:, index].transpose(0, 1) for x in kv))
        columns = torch.arange(width, device=index.device)
        there = columns >= width - lengths.unsqueeze(1)
        mask = torch.cat([there.new_ones(len(there), self._common), there, there.new_ones(len(there), 1)], 1)
        position = (lengths + self._common).unsqueeze(1)
        return logits, KVState(cache, prompt_of, position[prompt_of], mask[prompt_of], common)
