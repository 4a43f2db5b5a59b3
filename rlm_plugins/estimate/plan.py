"""A stage on this machine, before it runs: its config, its load, its memory.

It decides about gradient checkpointing too, which costs a third more arithmetic: it is on only where memory says so.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from rlm_plugins.estimate.memory import Estimate, Load, estimate
from rlm_plugins.estimate.workload import machine_memory, workload
from rlm_plugins.stage import Stage

ROOM = 0.8
"""Of the machine's memory an estimate may fill: what is not in it needs the rest."""
KEY = "gradient_checkpointing"


class Forecast:
    """What a stage takes. Its rows are looked at once, when somebody asks.

    Args:
        stage: With its world and its source built.
        args: The engine's config.
    """

    def __init__(self, stage: Stage, args: Any) -> None:
        self.stage, self.args = stage, args

    @cached_property
    def _load(self) -> Load:
        return workload(self.stage, self.args)

    @property
    def load(self) -> Load:
        """What the stage asks of the machine, as its config is now."""
        return replace(self._load, checkpointing=bool(self.args.gradient_checkpointing))

    @property
    def memory(self) -> Estimate:
        """In bytes, by what they are for."""
        return self._estimate(self.load)

    def needs_checkpointing(self) -> bool:
        """Whether a step without it would not fit; also where no estimate can be made."""
        try:
            return self._estimate(replace(self._load, checkpointing=False)).peak > ROOM * machine_memory()
        except (
            Exception
        ):  # a model of a kind that the estimate has never heard of, say: TRL's default is the careful one
            return True

    def decided(self) -> str | None:
        """What was decided about it and why, in words; None where the recipe says it, or there is nothing to decide."""
        if KEY in self.stage.settings or not hasattr(self.args, KEY):
            return None
        if self.args.gradient_checkpointing:
            return "gradient checkpointing is on: without it a step might not fit, or nobody can tell"
        return f"gradient checkpointing is off: without it a step fits in {ROOM:.0%} of this machine"

    def _estimate(self, load: Load) -> Estimate:
        return estimate(self.stage.source.config, self.stage.lora, load, self.stage.critic)
