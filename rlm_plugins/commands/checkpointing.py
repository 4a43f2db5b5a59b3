"""Whether a stage needs gradient checkpointing: it costs a third more arithmetic, so only where memory says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlm_plugins.commands.estimate import estimate
from rlm_plugins.commands.workload import machine_memory, workload
from rlm_plugins.stage import Stage

ROOM = 0.8
"""Of the machine's memory an estimate may fill: what is not in it needs the rest."""
KEY = "gradient_checkpointing"


def needs_checkpointing(stage: Stage, args: Any) -> bool:
    """Whether a step without it would not fit; also where no estimate can be made.

    Args:
        stage: With its world and its source built.
        args: The engine's config.
    """
    try:
        load = replace(workload(stage, args), checkpointing=False)
        return estimate(stage.source.config, stage.lora, load, stage.critic).peak > ROOM * machine_memory()
    except Exception:  # a model of a kind that the estimate has never heard of, say: TRL's default is the careful one
        return True


def decided(stage: Stage, args: Any) -> str | None:
    """What was decided and why, in words; None where the recipe says it, or there is nothing to decide."""
    if KEY in stage.settings or not hasattr(args, KEY):
        return None
    if args.gradient_checkpointing:
        return "gradient checkpointing is on: without it a step might not fit, or nobody can tell"
    return f"gradient checkpointing is off: without it a step fits in {ROOM:.0%} of this machine"
