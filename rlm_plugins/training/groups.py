"""TRL's configuration of the trainer, with groups of any size."""

from __future__ import annotations

import trl


class _One(int):
    """1, of which TRL's check `num_generations < 2` does not say that it is too few."""

    def __lt__(self, other: object) -> bool:
        return False


class GRPOConfig(trl.GRPOConfig):  # type: ignore[misc]
    """``trl.GRPOConfig``, and `num_generations` may be 1.

    TRL refuses groups of one because the advantage of GRPO is 0 there; here the advantage is a part, and some need no
    group (a baseline that is tracked or learned).
    """

    def __post_init__(self) -> None:
        generations: int = self.num_generations  # type: ignore[has-type]
        self.num_generations = _One(1) if generations == 1 else generations
        super().__post_init__()
        self.num_generations = generations
