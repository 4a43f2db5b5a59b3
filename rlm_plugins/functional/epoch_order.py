"""Orders of the prompts of one epoch, pure functions of size, epoch and seed."""

from __future__ import annotations

from rlm_plugins.lazy import torch


def shuffled(size: int, epoch: int, seed: int) -> list[int]:
    """Return every index once, in a new random order each epoch.

    Epoch e takes the (e+1)-th permutation drawn from one generator: TRL's own order (`RepeatSampler`), in every
    epoch. It depends on `seed` and `epoch` only, so a resumed run continues exactly.

    >>> shuffled(5, epoch=1, seed=0)
    [3, 4, 0, 1, 2]
    """
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epoch):
        torch.randperm(size, generator=generator)
    order: list[int] = torch.randperm(size, generator=generator).tolist()
    return order


def in_order(size: int) -> list[int]:
    """Return every index once, in the order of the data set: a curriculum, if that is sorted.

    >>> in_order(3)
    [0, 1, 2]
    """
    return list(range(size))
