"""Tokens of the completions of an optimizer step, for micro-batches within a token budget (`token_budget.py`).

Each prefix that prompts share is counted once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from rlm_fast.prefix_tree import common_length
from rlm_fast.prompt_groups import MicroBatch

KV_SHARE = 8
"""A completion copies the keys and values it attends to. Per token these are less than an eighth of the activations
of a transformer of common shape (`transformer.py`)."""


@dataclass(frozen=True)
class TokenCounts:
    """Tokens of the completions of an optimizer step, sorted by prompt, those that are skipped last.

    Args:
        group: Group of each completion.
        active: False for a skipped completion, which has no tokens.
        completion: Tokens of the completion but the last, which needs no forward pass, and its copied keys and values.
        prompt: Tokens of its prompt.
        shared: Length of the common prefix of its prompt and the prompt of the previous completion.
    """

    group: list[int]
    active: list[bool]
    completion: list[float]
    prompt: list[int]
    shared: list[int]

    @classmethod
    def of_step(cls, step: MicroBatch, active: torch.Tensor, *, relative: bool) -> TokenCounts:
        """Count the tokens of `step`.

        Args:
            step: Completions with `group`, `prompt_ids`, `prompt_mask` and `completion_mask`, sorted by prompt.
            active: (B,) False for a skipped completion.
            relative: Prompts of unequal length may share a prefix.
        """
        prompt_len, tokens = step["prompt_mask"].sum(1), (step["completion_mask"].sum(1) - 1).clamp(min=0)
        return cls(
            group=step["group"].tolist(),
            active=active.tolist(),
            completion=((tokens + (prompt_len + 2 * tokens) / KV_SHARE) * active).tolist(),
            prompt=(prompt_len * active).tolist(),
            shared=(_shared_with_previous(step, prompt_len.tolist(), relative) * active).tolist(),
        )

    def added_by(self, members: Sequence[int], *, to_empty: bool) -> float:
        """Return the tokens that consecutive completions add to a portion: an empty one, or that of the ones before."""
        first = members[0]
        completions = sum(self.completion[member] for member in members)
        prompts = sum(self.prompt[member] - self.shared[member] for member in members)
        return completions + prompts + (self.shared[first] if to_empty else 0)


def _shared_with_previous(step: MicroBatch, prompt_len: Sequence[int], relative: bool) -> torch.Tensor:
    """Return (B,) the length of the common prefix of each prompt and the previous one; 0 for the first prompt."""
    group, width = step["group"].tolist(), step["prompt_mask"].shape[1]
    shared = torch.zeros_like(step["group"])
    for previous, row in pairwise(range(len(group))):
        if group[previous] == group[row]:
            shared[row] = prompt_len[row]
        elif relative or prompt_len[previous] == prompt_len[row]:
            prompts = [step["prompt_ids"][i, width - prompt_len[i] :].tolist() for i in (previous, row)]
            shared[row] = common_length(prompts)
    return shared


def full_length_tokens(num_sequences: int, prompt_len: int, completion_len: int) -> float:
    """Return the weight in tokens of sequences of full length, each with its own prompt."""
    tokens = completion_len - 1
    return num_sequences * (prompt_len + tokens + (prompt_len + 2 * tokens) / KV_SHARE)
