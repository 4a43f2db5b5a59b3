"""Probe of advantages and filters on synthetic groups: the group sizes that give a signal.

Parts that compare completions do not declare that. They are recognized by having a signal in larger groups only.
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
from rlm_plugins.rollout.group_layout import POLICY, assign_sources, label, labels

LARGE = 64
"""Group size in which every part gives a signal, if any does."""


def min_group_size(part: Bound, size: int, rewards: Sequence[str], sources: Sequence[Bound] = ()) -> int:
    """Return the smallest group size for which a part gives a signal, if `size` gives none; otherwise 0.

    Args:
        part: An advantage (a signal is not 0) or a filter (a signal is a kept completion).
        size: Completions per prompt.
        rewards: The labels of the rewards.
        sources: Rollout sources beside the policy.
    """
    if size >= LARGE or has_signal(part, size, rewards, sources) or not has_signal(part, LARGE, rewards, sources):
        return 0
    return next(larger for larger in range(size + 1, LARGE + 1) if has_signal(part, larger, rewards, sources))


def has_signal(part: Bound, size: int, rewards: Sequence[str], sources: Sequence[Bound] = ()) -> bool:
    """Return True if a part returns a nonzero value (or True) for groups of `size`; a part that fails does not."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch in _batches(size, rewards, sources):
            with suppress(Exception):
                stateless = replace(part, target=copy.deepcopy(part.target))  # the state of the part must not change
                output: Any = stateless(batch)
                output = output[0] if isinstance(output, tuple) else output
                if bool((output.nan_to_num() != 0).any()):
                    return True
    return False


def _batches(size: int, rewards: Sequence[str], sources: Sequence[Bound]) -> Iterator[Batch]:
    """Yield groups with every number of correct completions, with rewards 0 and 1, and with distinct rewards."""
    correct = (torch.arange(size) < torch.arange(size + 1).unsqueeze(1)).flatten().float()
    for scores in (correct, correct + torch.rand(len(correct), generator=torch.Generator().manual_seed(0))):
        yield _rows(scores, size, rewards, sources)


def _is_equal(source_labels: Sequence[str], name: str) -> torch.Tensor:
    return torch.tensor([label == name for label in source_labels])


def _rows(scores: torch.Tensor, size: int, rewards: Sequence[str], sources: Sequence[Bound]) -> Batch:
    """Return a batch of one to three tokens per completion, with all data of the scoring phase."""
    count = len(scores)
    group = torch.arange(count) // size
    mask = torch.arange(3) <= (torch.arange(count) % 3).unsqueeze(1)
    numbers = torch.rand(count, 3, generator=torch.Generator().manual_seed(1)).where(mask, 0.0)
    names = [POLICY, *map(label, sources)]
    source_labels = [names[number] for number in assign_sources(sources, size)] * (count // size)
    return Batch(
        group=group,
        mask=mask,
        truncated=torch.zeros(count, dtype=torch.bool),
        prompt_index=group.clone(),
        sources={name: _is_equal(source_labels, name) for name in labels(sources)},
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
