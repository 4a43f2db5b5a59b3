"""Probe of advantages and filters on synthetic groups: does a group size give any signal?

A part that compares completions is not declared as such: it gives a signal for larger groups only.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.dispatch import on_last_token
from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.group_layout import POLICY, label, labels, owners

LARGE = 64
"""Group size in which every part gives a signal, if any does."""


def least_group(part: Bound, size: int, rewards: Sequence[str], sources: Sequence[Bound] = ()) -> int:
    """Return the smallest group size for which a part gives a signal, if `size` gives none; otherwise 0.

    Args:
        part: An advantage (a signal is not 0) or a filter (a signal is a kept completion).
        size: Completions per prompt.
        rewards: The labels of the rewards.
        sources: Rollout sources beside the policy.
    """
    if size >= LARGE or has_signal(part, size, rewards, sources) or not has_signal(part, LARGE, rewards, sources):
        return 0
    return next(more for more in range(size + 1, LARGE + 1) if has_signal(part, more, rewards, sources))


def has_signal(part: Bound, size: int, rewards: Sequence[str], sources: Sequence[Bound] = ()) -> bool:
    """Return True if a part gives anything but 0 (or False) for groups of `size`; a failure counts as nothing."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch in _batches(size, rewards, sources):
            with suppress(Exception):
                output: Any = replace(part, target=copy.deepcopy(part.target))(
                    batch
                )  # a copy: its state must not change
                output = output[0] if isinstance(output, tuple) else output
                if bool((output.nan_to_num() != 0).any()):
                    return True
    return False


def _batches(size: int, rewards: Sequence[str], sources: Sequence[Bound]) -> Iterator[Batch]:
    """Yield groups with every number of right completions, with rewards 0 and 1, and with distinct rewards."""
    right = (torch.arange(size) < torch.arange(size + 1).unsqueeze(1)).flatten().float()
    for scores in (right, right + torch.rand(len(right), generator=torch.Generator().manual_seed(0))):
        yield _rows(scores, size, rewards, sources)


def _rows(scores: torch.Tensor, size: int, rewards: Sequence[str], sources: Sequence[Bound]) -> Batch:
    """Return a batch of one to three tokens per completion, with all data of the scoring phase."""
    count = len(scores)
    group = torch.arange(count) // size
    mask = torch.arange(3) <= (torch.arange(count) % 3).unsqueeze(1)
    numbers = torch.rand(count, 3, generator=torch.Generator().manual_seed(1)).where(mask, 0.0)
    names = [POLICY, *map(label, sources)]
    generated_by = [names[number] for number in owners(sources, size)] * (count // size)
    return Batch(
        group=group,
        mask=mask,
        truncated=torch.zeros(count, dtype=torch.bool),
        prompt_index=group.clone(),
        sources={name: torch.tensor([name == source for source in generated_by]) for name in labels(sources)},
        max_completion_length=4,
        step=0,
        completion_ids=[[row] * (1 + row % 3) for row in range(count)],
        rewards=scores,
        named_rewards={name: scores.clone() for name in rewards},
        token_rewards=on_last_token(scores, mask),
        dense_rewards=torch.zeros(count, 3),
        old_logp=-numbers,
        ref_logp=-numbers / 2,
        rollout_logp=-numbers,
        policy_drift=torch.zeros(count),
        entropy=numbers,
        self_certainty=numbers,
        top2_margin=numbers,
        values=numbers,
    )
