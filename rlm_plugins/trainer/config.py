"""Configuration of the trainer: TRL's, with groups of any size and `target_kl`."""

from __future__ import annotations

from dataclasses import dataclass, field

import trl


class _One(int):
    """1, which passes TRL's check `num_generations < 2`."""

    def __lt__(self, other: object) -> bool:
        return False


@dataclass
class GRPOConfig(trl.GRPOConfig):  # type: ignore[misc]
    """``trl.GRPOConfig`` in which `num_generations` may be 1, with `target_kl` (`trainer/target_kl.py`).

    TRL requires groups because the advantage of GRPO is 0 in a singleton group. Here the advantage is a part, and a
    tracked or learned baseline needs no group.
    """

    target_kl: float | None = field(
        default=None,
        metadata={
            "help": "With several updates per generation batch: once the mean KL from the policy that sampled it "
            "exceeds this, in nats per token, the updates left on the batch are skipped. None: never."
        },
    )

    def __post_init__(self) -> None:
        generations: int = self.num_generations  # type: ignore[has-type]
        self.num_generations = _One(1) if generations == 1 else generations
        super().__post_init__()
        self.num_generations = generations
