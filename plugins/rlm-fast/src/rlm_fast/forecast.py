"""Plan of a stage on this machine before it runs: config, load, memory.

It also decides on gradient checkpointing, which costs a third more arithmetic: it is on only if memory requires it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from rlm_fast.load import Load
from rlm_fast.memory_estimate import Estimate, estimate
from rlm_fast.workload import machine_memory, workload
from rlm_plugins.registry.setting import PolicyBytes, Setting
from rlm_plugins.stage import Stage

KEY = "gradient_checkpointing"


class Forecast:
    """Load and memory of a stage, computed at first use.

    Args:
        stage: With its environment and model specification.
        args: Config of the trainer.
        share: Share of the machine's memory that an estimate may fill; the rest is for what it does not include.
    """

    def __init__(self, stage: Stage, args: Any, share: float = 0.8) -> None:
        self.stage, self.args, self.share = stage, args, share

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
            return self._estimate(replace(self._load, checkpointing=False)).peak > self.share * machine_memory()
        except Exception:  # the estimate does not cover every model; TRL's default is on
            return True

    def checkpointing_decision(self) -> str | None:
        """Return the decision on checkpointing with its reason, or None if the recipe makes it."""
        if KEY in self.stage.settings or not hasattr(self.args, KEY):
            return None
        if self.args.gradient_checkpointing:
            return "gradient checkpointing is on: a step without it might not fit, or its memory is unknown"
        return f"gradient checkpointing is off: a step needs less than {self.share:.0%} of this machine's memory"

    def _estimate(self, load: Load) -> Estimate:
        return estimate(self.stage.source.config, self.stage.lora, load, self.stage.critic, self._of_settings)

    def _of_settings(self, policy: PolicyBytes) -> dict[str, int]:
        """Return the bytes that the settings of packages keep in memory, by name."""
        added: Mapping[str, Setting] = getattr(self.args, "added", {})
        terms = {name: setting.memory_bytes for name, setting in added.items() if setting.memory_bytes is not None}
        return {f"`{name}`": memory_bytes(policy, self.args) for name, memory_bytes in terms.items()}
