"""Dynamic micro-batches: as many completions as fit a token budget, each shared prefix of prompts counted once.

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

from rlm_fast import chunk_sizes
from rlm_fast.prompt_groups import MicroBatch, has_advantage, sorted_by_prompt
from rlm_fast.token_counts import TokenCounts, full_length_tokens
from rlm_plugins.rollout.dynamic_sampling import has_batch_dim

PORTIONS = "portions"
"""Key of a micro-batch under which its portions are stored."""


SplitRule = Callable[[TokenCounts], list[int]]
"""Tokens of an optimizer step → number of completions of each portion."""


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
    full_length = full_length_tokens(num_sequences, prompt_width, completion_width)
    if max_tokens is None:
        merged = chunk_sizes.merged_tokens(num_parameters, full_length)
        return partial(merge_micro_batches, num_sequences=num_sequences, max_tokens=merged)
    if max_tokens == "auto":
        return partial(split_groups, max_tokens=full_length)
    return partial(split_groups, max_tokens=float(max_tokens))


def split_into_portions(
    micro_batches: Sequence[MicroBatch],
    step_size: int,
    rule: SplitRule,
    *,
    skip_zero_advantage: bool = False,
    relative: bool = False,
    max_over_ranks: Callable[[int], int] = int,
) -> list[MicroBatch]:
    """Split the completions of each optimizer step into portions, and give each micro-batch a list of them.

    Args:
        micro_batches: As in `group_by_prompt`.
        step_size: Micro-batches of an optimizer step; a generation holds a whole number of steps.
        rule: Sizes of the portions; see `split_rule`.
        skip_zero_advantage: Zero-advantage completions are skipped and have no tokens.
        relative: Prompts of unequal length may share a prefix.
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
        counts = rule(TokenCounts.of_step(ordered, active, relative=relative))
        # Every process must run the same number of backward passes, or DDP would wait forever.
        counts = halve_until(counts, max_over_ranks(len(counts)))
        chunks = {name: x.split(counts) for name, x in ordered.items()}
        shared = {name: x for name, x in step[0].items() if not has_batch_dim(x)}
        portions: list[MicroBatch] = []
        for i in range(len(counts)):
            portions.append({**shared, **{name: x[i] for name, x in chunks.items()}})
        # The last micro-batch always gets a portion, since gradients are synchronized there.
        bounds = [len(portions) * i // step_size for i in range(step_size + 1)]
        result += [{PORTIONS: portions[low:high]} for low, high in pairwise(bounds)]
    return result


def split_groups(tokens: TokenCounts, max_tokens: float) -> list[int]:
    """Return the number of completions of each portion; groups are kept together if they fit.

    Args:
        tokens: Tokens of the completions.
        max_tokens: Most tokens of a portion, copied keys and values (`KV_SHARE`) included.
    """
    keys = list(zip(tokens.group, tokens.active, strict=True))
    chunks: list[Sequence[int]] = []
    for _, indices in groupby(range(len(keys)), key=keys.__getitem__):
        members = list(indices)
        is_whole = tokens.added_by(members, to_empty=True) <= max_tokens
        chunks += [members] if is_whole else [[member] for member in members]
    return _fill(tokens, chunks, max_tokens)


def merge_micro_batches(tokens: TokenCounts, *, num_sequences: int, max_tokens: float) -> list[int]:
    """Return the number of completions of each portion; neighboring micro-batches are merged within the budget.

    Args:
        tokens: Tokens of the completions.
        num_sequences: Completions of a micro-batch; a single one may exceed the budget.
        max_tokens: Most tokens of a merged portion, copied keys and values (`KV_SHARE`) included.
    """
    count = len(tokens.group)
    chunks = [range(first, min(first + num_sequences, count)) for first in range(0, count, num_sequences)]
    return _fill(tokens, chunks, max_tokens)


def _fill(tokens: TokenCounts, chunks: Sequence[Sequence[int]], max_tokens: float) -> list[int]:
    """Return the number of completions of each portion, filled with consecutive chunks that are kept together."""
    sizes, filled = [0], 0.0
    for members in chunks:
        added = tokens.added_by(members, to_empty=not sizes[-1])
        if sizes[-1] and filled + added > max_tokens:
            sizes, filled, added = [*sizes, 0], 0.0, tokens.added_by(members, to_empty=True)
        sizes[-1] += len(members)
        filled += added
    return sizes


def halve_until(sizes: Sequence[int], count: int) -> list[int]:
    """Halve the largest portion until there are `count` portions."""
    halved = list(sizes)
    while len(halved) < count:
        i = halved.index(max(halved))
        halved[i : i + 1] = [halved[i] - halved[i] // 2, halved[i] // 2]
    return halved
