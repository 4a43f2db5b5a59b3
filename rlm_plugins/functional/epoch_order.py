"""Orders of the prompts of one epoch, pure functions of size, epoch and seed."""

from __future__ import annotations

from rlm_plugins.lazy import torch


def shuffled(size: int, epoch: int, seed: int) -> list[int]:
    """Every row once, in a new random order each epoch.

    Epoch e takes the (e+1)-th permutation drawn from one generator: TRL's own order (`RepeatSampler`), in every
    epoch. Since it depends on `seed` and `epoch` alone, a resumed run goes on where it stopped.

    >>> shuffled(5, epoch=1, seed=0)
    [3, 4, 0, 1, 2]
    """
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epoch):
        torch.randperm(size, generator=generator)
    order: list[int] = torch.randperm(size, generator=generator).tolist()
    return order


def in_order(size: int) -> list[int]:
    """Every row once, as the data set has them: sort it, and this is a curriculum.

    >>> in_order(3)
    [0, 1, 2]
    """
    return list(range(size))
