"""TRL's configuration of the trainer, with groups of any size and a bound on how far a generation is used."""

from __future__ import annotations

from dataclasses import dataclass, field

import trl


class _One(int):
    """1, of which TRL's check `num_generations < 2` does not say that it is too few."""

    def __lt__(self, other: object) -> bool:
        return False


@dataclass
class GRPOConfig(trl.GRPOConfig):  # type: ignore[misc]
    """``trl.GRPOConfig``, and `num_generations` may be 1; `target_kl` is ours (`trainer/target_kl.py`).

    TRL refuses groups of one because the advantage of GRPO is 0 there; here the advantage is a part, and some need no
    group (a baseline that is tracked or learned).
    """

    target_kl: float | None = field(
        default=None,
        metadata={
            "help": "With several updates per generation: once the mean KL from the policy that wrote it is beyond "
            "this, in nats per token, the updates left on the generation are passed over. None: never."
        },
    )

    def __post_init__(self) -> None:
        generations: int = self.num_generations  # type: ignore[has-type]
        self.num_generations = _One(1) if generations == 1 else generations
        super().__post_init__()
        self.num_generations = generations
