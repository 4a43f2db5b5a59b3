"""Configuration of the trainer: TRL's, with groups of any size, `target_kl`, `stale` and `generation_device`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import trl

from rlm_plugins.errors import RecipeError


class _SingleGeneration(int):
    """1, which passes TRL's check `num_generations < 2`."""

    def __lt__(self, other: object) -> bool:
        return False


@dataclass
class GRPOConfig(trl.GRPOConfig):  # type: ignore[misc]
    """``trl.GRPOConfig`` in which `num_generations` may be 1, with four fields.

    `target_kl` is described in `trainer/target_kl.py`, `stale` and `old_policy` in `trainer/stale_policy.py`,
    `generation_device` in `trainer/overlapped_generation.py`.

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
    stale: int = field(
        default=0,
        metadata={
            "help": "Optimizer steps by which the policy that generates is older than the one that is trained, as in "
            "asynchronous training. Generation and updates alternate as always, unless `generation_device` is set. "
            "0: on-policy."
        },
    )
    old_policy: Literal["behavior", "proximal"] | None = field(
        default=None,
        metadata={
            "help": "With `stale`, the policy that the ratio divides by: `behavior`, which sampled, or `proximal`, "
            "that at the start of the update. None: `proximal` if a part requires `rollout_logp`, else `behavior`."
        },
    )

    generation_device: str | None = field(
        default=None,
        metadata={
            "help": "With `stale`, the device of a second process that generates the next batches during the update: "
            "`cpu`, `cuda:1`. It has a copy of the policy. None: this process generates before each update."
        },
    )

    def __post_init__(self) -> None:
        if self.stale and self.use_vllm:
            raise RecipeError(
                "`stale` is simulated with the policy's own weights, which vLLM copies at each generation",
                where="trainer.stale",
                hint="leave `use_vllm` out, or train asynchronously in another framework: see docs/staleness.md",
            )
        if self.old_policy is not None and not self.stale:
            problem = "behavior and proximal policy are the same without `stale`"
            raise RecipeError(problem, where="trainer.old_policy", hint="set `stale`, or leave it out")
        if self.generation_device is not None and not self.stale:
            problem = "a batch that is generated during the update requires an earlier policy, but `stale` is 0"
            raise RecipeError(problem, where="trainer.generation_device", hint="set `stale: 1`, or leave it out")
        generations: int = self.num_generations  # type: ignore[has-type]
        self.num_generations = _SingleGeneration(1) if generations == 1 else generations
        super().__post_init__()
        self.num_generations = generations
