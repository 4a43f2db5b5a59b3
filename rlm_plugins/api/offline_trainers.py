"""TRL's supervised trainers with complete checkpoints: `SFTTrainer` and `RewardTrainer`."""

from __future__ import annotations

from typing import Any

import trl

from rlm_plugins.errors import RecipeError
from rlm_plugins.trainer.checkpoint import DurableCheckpoints


class SFTTrainer(DurableCheckpoints, trl.SFTTrainer):  # type: ignore[misc]
    """TRL's `SFTTrainer`, whose checkpoints are complete or absent.

    Args:
        *args, **kwargs: As :class:`trl.SFTTrainer`.
        algorithm: ``"sft"``, or ``"dft"`` for dynamic fine-tuning; None: the config's `loss_type`.

    Raises:
        RecipeError: Another algorithm, or one that contradicts `loss_type`.
    """

    def __init__(self, *args: Any, algorithm: str | None = None, **kwargs: Any) -> None:
        if algorithm not in (None, "sft", "dft"):
            raise RecipeError(f"unknown algorithm '{algorithm}'", where="algorithm", allowed="sft, dft")
        if algorithm == "dft":
            config = kwargs.get("args") or (args[1] if len(args) > 1 else None) or trl.SFTConfig()
            if config.loss_type not in ("nll", "dft"):
                problem = f"SFTConfig has loss_type='{config.loss_type}', but the algorithm is 'dft'"
                raise RecipeError(problem, where="args.loss_type", hint="say it once")
            config.loss_type = "dft"
            args, kwargs = args[:1] + args[2:], kwargs
            kwargs["args"] = config
        super().__init__(*args, **kwargs)


class RewardTrainer(DurableCheckpoints, trl.RewardTrainer):  # type: ignore[misc]
    """TRL's `RewardTrainer`, whose checkpoints are complete or absent; arguments as there."""
