"""Plan of a stage on this machine before it runs: config, load, memory.

It also decides on gradient checkpointing, which costs a third more arithmetic: it is on only if memory requires it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from rlm_fast import kernel_choices
from rlm_fast.load import Load
from rlm_fast.memory_estimate import Estimate, estimate
from rlm_fast.speed_report import fast_path_lines, generation_lines
from rlm_fast.workload import machine_memory, workload
from rlm_plugins.stage import Stage
from rlm_plugins.stage_settings import NO_SPEED

MARGIN = 0.8
"""Share of the machine's memory that an estimate may fill; the rest is for what it does not include."""
KEY = "gradient_checkpointing"


class Forecast:
    """Load and memory of a stage, computed at first use.

    Args:
        stage: With its environment and model specification.
        args: Config of the trainer.
    """

    def __init__(self, stage: Stage, args: Any) -> None:
        self.stage, self.args = stage, args

    @cached_property
    def _load(self) -> Load:
        return workload(self.stage, self.args)

    @property
    def load(self) -> Load:
        """Sizes of the batches, with gradient checkpointing as the config has it now."""
        return replace(self._load, checkpointing=bool(self.args.gradient_checkpointing))

    @property
    def memory(self) -> Estimate:
        """Bytes by purpose."""
        return self._estimate(self.load)

    def needs_checkpointing(self) -> bool:
        """Return True if a step without checkpointing would not fit, or if no estimate can be made."""
        try:
            return self._estimate(replace(self._load, checkpointing=False)).peak > MARGIN * machine_memory()
        except Exception:  # the estimate does not cover every model; TRL's default is on
            return True

    def checkpointing_decision(self) -> str | None:
        """Return the decision on checkpointing with its reason, or None if the recipe makes it."""
        if KEY in self.stage.settings or not hasattr(self.args, KEY):
            return None
        if self.args.gradient_checkpointing:
            return "gradient checkpointing is on: without it a step might not fit, or memory cannot be estimated"
        return f"gradient checkpointing is off: without it a step fits in {MARGIN:.0%} of this machine"

    @property
    def machine_memory(self) -> int:
        """Memory of this machine, in bytes."""
        return machine_memory()

    def speed_lines(self) -> list[str]:
        """Return the lines of ``rlm check`` on the generator, fast paths and kernels chosen by measurement."""
        fast = [*generation_lines(self.stage, self.args), *fast_path_lines(self.stage, self.args)]
        return fast if self.stage.speed == NO_SPEED else [*fast, kernel_choices.line(self.stage)]

    def _estimate(self, load: Load) -> Estimate:
        return estimate(self.stage.source.config, self.stage.lora, load, self.stage.critic)
