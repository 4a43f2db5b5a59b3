"""Which problem next (hook ``rlm_samplers``): the order of an epoch, or a choice before every generation."""

from __future__ import annotations

from rlm_plugins import hookimpl
from rlm_plugins.builtin.tracked_baseline import Curriculum, Prioritised


def shuffled(size: int, epoch: int, seed: int) -> list[int]:
    """Every row once, in a new random order each epoch.

    Epoch e takes the (e+1)-th permutation drawn from one generator: TRL's own order (`RepeatSampler`), in every
    epoch. Since it depends on `seed` and `epoch` alone, a resumed run goes on where it stopped.

    >>> shuffled(5, epoch=1, seed=0)
    [3, 4, 0, 1, 2]
    """
    from rlm_plugins.rollout.prompt_sampler import shuffled_order

    return shuffled_order(size, epoch, seed)


def in_order(size: int) -> list[int]:
    """Every row once, as the data set has them: sort it, and this is a curriculum.

    >>> in_order(3)
    [0, 1, 2]
    """
    return list(range(size))


@hookimpl
def rlm_samplers() -> dict[str, object]:
    return {"shuffled": shuffled, "in_order": in_order, "prioritised": Prioritised, "curriculum": Curriculum}
