"""Checks of parts against the trainer's config, by their own `validate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_plugins.recipe.checks.data_needs import standing
from rlm_plugins.recipe.checks.dataset import stands_at
from rlm_plugins.registry.protocols import ValidatesConfig
from rlm_plugins.schedule import Schedule


def check_suits(slots: Mapping[str, Any], config: Any, where: str) -> None:
    """Call `validate(config, **knobs)` of every part that has it; a schedule is checked at both ends.

    Args:
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        config: The trainer's.
        where: Address of the section, for errors.

    Raises:
        RecipeError: As raised by the part, with its address.
    """
    for _, bound, address in standing(slots, where):
        target: Any = bound.target
        for end in ("start", "end") if isinstance(target, ValidatesConfig) else ():
            knobs = {name: getattr(x, end) if isinstance(x, Schedule) else x for name, x in bound.knobs.items()}
            with stands_at(address):
                target.validate(config, **knobs)
