"""Whether groups of a size can teach anything: parts are asked about made-up rows before anything is trained.

Nobody declares that a part compares the rows of a group. It shows: of larger groups it says what it cannot of these.
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
"""Rows of a group in which every part finds what it looks for, or nowhere."""


def least_group(part: Bound, size: int, rewards: Sequence[str], sources: Sequence[Bound] = ()) -> int:
    """The smallest group that a part has anything to say about, where groups of `size` are too small; else 0.

    Args:
        part: An advantage (it says something where it is not 0) or a filter (where it keeps a row).
        size: Rows of a group.
        rewards: The labels of the rewards.
        sources: Who writes rows beside the policy.
    """
    if size >= LARGE or speaks(part, size, rewards, sources) or not speaks(part, LARGE, rewards, sources):
        return 0
    return next(more for more in range(size + 1, LARGE + 1) if speaks(part, more, rewards, sources))


def speaks(part: Bound, size: int, rewards: Sequence[str], sources: Sequence[Bound] = ()) -> bool:
    """Whether a part says anything but 0 (or False) about groups of `size`; one that fails says nothing."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch in _batches(size, rewards, sources):
            with suppress(Exception):
                said: Any = replace(part, target=copy.deepcopy(part.target))(batch)  # it will not remember this
                said = said[0] if isinstance(said, tuple) else said
                if bool((said.nan_to_num() != 0).any()):
                    return True
    return False


def _batches(size: int, rewards: Sequence[str], sources: Sequence[Bound]) -> Iterator[Batch]:
    """A group for every number of right rows there can be, rewards 0 and 1; the same with rewards all different."""
    right = (torch.arange(size) < torch.arange(size + 1).unsqueeze(1)).flatten().float()
    for scores in (right, right + torch.rand(len(right), generator=torch.Generator().manual_seed(0))):
        yield _rows(scores, size, rewards, sources)


def _rows(scores: torch.Tensor, size: int, rewards: Sequence[str], sources: Sequence[Bound]) -> Batch:
    """Rows of one to three tokens with everything a part of the scoring room may name."""
    count = len(scores)
    group = torch.arange(count) // size
    mask = torch.arange(3) <= (torch.arange(count) % 3).unsqueeze(1)
    numbers = torch.rand(count, 3, generator=torch.Generator().manual_seed(1)).where(mask, 0.0)
    writers = [POLICY, *map(label, sources)]
    wrote = [writers[number] for number in owners(sources, size)] * (count // size)
    return Batch(
        group=group,
        mask=mask,
        truncated=torch.zeros(count, dtype=torch.bool),
        prompt_index=group.clone(),
        sources={name: torch.tensor([name == writer for writer in wrote]) for name in labels(sources)},
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
