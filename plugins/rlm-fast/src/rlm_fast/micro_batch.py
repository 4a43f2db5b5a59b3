"""Largest micro-batch of a stage: its sequences, and its prompts if the pass is packed."""

from __future__ import annotations

import math

from rlm_fast import chunk_sizes
from rlm_fast.stage_features import StageFeatures
from rlm_fast.support import max_packed_length
from rlm_fast.token_counts import full_length_tokens


def micro_batch(features: StageFeatures, prompt_len: int, completion_len: int, common_len: int) -> tuple[int, int]:
    """Return the sequences and the prompts (0: padded) of a micro-batch at full length.

    Args:
        features: Fast paths of the stage.
        prompt_len: Longest prompt, in tokens.
        completion_len: Longest completion, in tokens.
        common_len: Tokens that all prompts start with.
    """
    args = features.args
    size, group = args.per_device_train_batch_size, args.num_generations
    limit = max_packed_length(features.stage.source.config)
    if not features.padding_free.on or (limit is not None and prompt_len + completion_len > limit):
        return size, 0
    step = size * args.gradient_accumulation_steps
    # Shuffled, a micro-batch may hold completions of every prompt of the generation.
    if not features.group_micro_batches.on:
        return size, min(size, math.ceil(size * args.steps_per_generation / group))
    if features.dynamic_micro_batches.on:
        size = max(1, min(_fitting(features, prompt_len, completion_len, common_len), step))
    return size, math.ceil(size / group)


def _fitting(features: StageFeatures, prompt_len: int, completion_len: int, common_len: int) -> int:
    """Return how many sequences of full length fit the token budget, each prompt and common prefix counted once."""
    args, max_tokens = features.args, features.speed.max_tokens_per_micro_batch
    size = args.per_device_train_batch_size
    full_length = full_length_tokens(size, prompt_len, completion_len)
    if max_tokens == "auto":
        budget = full_length
    elif max_tokens is None:
        budget = chunk_sizes.merged_tokens(features.num_parameters, full_length)
    else:
        budget = float(max_tokens)
    prompt_share = (prompt_len - common_len) / args.num_generations
    tokens_per_sequence = full_length_tokens(1, prompt_len, completion_len) - prompt_len + prompt_share
    fitting = int((budget - common_len) / tokens_per_sequence)
    return fitting if max_tokens else max(size, fitting)
