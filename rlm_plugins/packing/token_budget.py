"""Dynamic micro-batches: as many completions as fit a token budget, each prompt counted once.

Short completions, shared prompts and zero-advantage completions leave a micro-batch smaller than memory allows. A
budget fills it with whole groups; a group is only split if it exceeds the budget. Without a budget, whole micro-batches
are merged while they are small. The portions of an optimizer step are assigned to its last micro-batches; those without
a portion take no time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby, pairwise

import torch
from jaxtyping import Bool, Int

from rlm_plugins.kernels import chunk_sizes
from rlm_plugins.packing.prompt_groups import MicroBatch, has_advantage, sorted_by_prompt
from rlm_plugins.rollout.dynamic_sampling import has_batch_dim

KV_SHARE = 8
"""A completion copies the keys and values it attends to. Per token these are less than an eighth of the activations
of a transformer of common shape (`estimate/transformer.py`)."""
PORTIONS = "portions"
"""Key of a micro-batch under which its portions are stored."""
SplitRule = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], list[int]]
"""(group, prompt_len, completion_len, active), each (B,) → number of completions of each portion."""


def split_rule(
    max_tokens: int | str | None,
    *,
    num_sequences: int,
    prompt_width: int,
    completion_width: int,
    num_parameters: int,
) -> SplitRule:
    """Return the rule by which the completions of an optimizer step are split into portions.

    Args:
        max_tokens: `speed.max_tokens_per_micro_batch`: a number; ``auto``, a micro-batch of full length; None, merge
            whole micro-batches.
        num_sequences: Completions of a micro-batch.
        prompt_width: Width of the padded prompts.
        completion_width: Width of the padded completions.
        num_parameters: Parameters of the model.
    """
    if max_tokens is None:
        return partial(
            merge_micro_batches, num_sequences=num_sequences, max_tokens=chunk_sizes.PRODUCTS / num_parameters
        )
    if max_tokens == "auto":
        return partial(split_groups, max_tokens=full_length_tokens(num_sequences, prompt_width, completion_width))
    return partial(split_groups, max_tokens=float(max_tokens))


def full_length_tokens(num_sequences: int, prompt_len: int, completion_len: int) -> float:
    """Return the weight in tokens of sequences of full length, each with its own prompt."""
    tokens = completion_len - 1
    return num_sequences * (prompt_len + tokens + (prompt_len + 2 * tokens) / KV_SHARE)


def split_into_portions(
    micro_batches: Sequence[MicroBatch],
    step_size: int,
    rule: SplitRule,
    *,
    skip_zero_advantage: bool = False,
    max_over_ranks: Callable[[int], int] = int,
) -> list[MicroBatch]:
    """Split the completions of each optimizer step into portions, and give each micro-batch a list of them.

    Args:
        micro_batches: As in `group_by_prompt`.
        step_size: Micro-batches of an optimizer step; a generation holds a whole number of steps.
        rule: Sizes of the portions; see `split_rule`.
        skip_zero_advantage: Zero-advantage completions are skipped and weigh nothing.
        max_over_ranks: Maximum over processes, all of which must have the same number of portions.

    Returns:
        Micro-batches with `PORTIONS` only: mostly one portion, sometimes none.
    """
    result: list[MicroBatch] = []
    for first in range(0, len(micro_batches), step_size):
        step = micro_batches[first : first + step_size]
        ordered = sorted_by_prompt(step)
        if skip_zero_advantage:
            active = has_advantage(ordered["advantages"])
        else:
            active = torch.ones_like(ordered["group"], dtype=torch.bool)
        prompt_len, completion_len = ordered["prompt_mask"].sum(1), ordered["completion_mask"].sum(1)
        counts = rule(ordered["group"], prompt_len, completion_len, active)
        # Every process must run the same number of backward passes, or DDP would wait forever.
        counts = halve_until(counts, max_over_ranks(len(counts)))
        pieces = {name: x.split(counts) for name, x in ordered.items()}
        shared = {name: x for name, x in step[0].items() if not has_batch_dim(x)}
        portions = [{**shared, **{name: x[i] for name, x in pieces.items()}} for i in range(len(counts))]
        # The last micro-batch always gets a portion, since gradients are synchronized there.
        bounds = [len(portions) * i // step_size for i in range(step_size + 1)]
        result += [{PORTIONS: portions[low:high]} for low, high in pairwise(bounds)]
    return result


def split_groups(
    group: Int[torch.Tensor, "B"],
    prompt_len: Int[torch.Tensor, "B"],
    completion_len: Int[torch.Tensor, "B"],
    active: Bool[torch.Tensor, "B"],
    max_tokens: float,
) -> list[int]:
    """Return the number of completions of each portion; groups are kept together if they fit.

    Args:
        group: Group of each completion, sorted.
        prompt_len: Tokens of its prompt.
        completion_len: Tokens of the completion, the last of which needs no forward pass.
        active: False for skipped completions.
        max_tokens: Most tokens of a portion, copied keys and values (`KV_SHARE`) included.
    """
    weights, prompts = _weights(prompt_len, completion_len, active)
    kinds = list(zip(group.tolist(), active.tolist(), strict=True))
    sizes, filled = [0], 0.0
    for _, indices in groupby(range(len(kinds)), key=kinds.__getitem__):
        members = list(indices)
        prompt = prompts[members[0]]
        fits = prompt + sum(weights[member] for member in members) <= max_tokens
        pieces = [members] if fits else [[member] for member in members]
        for piece in pieces:
            weight = sum(weights[member] for member in piece)
            new_prompt = prompt if piece[0] == members[0] else 0  # later pieces find the prompt in the portion
            if sizes[-1] and filled + new_prompt + weight > max_tokens:
                sizes, filled, new_prompt = [*sizes, 0], 0.0, prompt
            sizes[-1] += len(piece)
            filled += new_prompt + weight
    return sizes


def merge_micro_batches(
    group: Int[torch.Tensor, "B"],
    prompt_len: Int[torch.Tensor, "B"],
    completion_len: Int[torch.Tensor, "B"],
    active: Bool[torch.Tensor, "B"],
    *,
    num_sequences: int,
    max_tokens: float,
) -> list[int]:
    """Return the number of completions of each portion; neighboring micro-batches are merged within the budget.

    Args:
        group: Group of each completion, sorted.
        prompt_len: Tokens of its prompt.
        completion_len: Tokens of the completion.
        active: False for skipped completions.
        num_sequences: Completions of a micro-batch; a single one may exceed the budget.
        max_tokens: Most tokens of a merged portion, copied keys and values (`KV_SHARE`) included.
    """
    weights, prompts = _weights(prompt_len, completion_len, active)
    groups, sizes, filled = group.tolist(), [0], 0.0
    for first in range(0, len(groups), num_sequences):
        members = range(first, min(first + num_sequences, len(groups)))
        weight = sum(weights[member] for member in members)
        weight += sum({groups[member]: prompts[member] for member in members}.values())
        if sizes[-1] and filled + weight > max_tokens:
            sizes, filled = [*sizes, 0], 0.0
        sizes[-1] += len(members)
        filled += weight
    return sizes


def _weights(
    prompt_len: torch.Tensor, completion_len: torch.Tensor, active: torch.Tensor
) -> tuple[list[float], list[int]]:
    """Return the weight of each completion and of its prompt, in tokens; 0 for skipped ones."""
    tokens = (completion_len - 1).clamp(min=0)
    return ((tokens + (prompt_len + 2 * tokens) / KV_SHARE) * active).tolist(), (prompt_len * active).tolist()


def halve_until(sizes: Sequence[int], count: int) -> list[int]:
    """Halve the largest portion until there are `count` portions."""
    halved = list(sizes)
    while len(halved) < count:
        at = halved.index(max(halved))
        halved[at : at + 1] = [halved[at] - halved[at] // 2, halved[at] // 2]
    return halved
