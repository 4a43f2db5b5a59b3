"""Whether the knobs of parts suit what `trainer:` says; the parts know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_plugins.recipe.checks.data_needs import standing
from rlm_plugins.recipe.checks.dataset import stands_at
from rlm_plugins.registry.protocols import ValidatesConfig
from rlm_plugins.schedule import Schedule


def check_suits(slots: Mapping[str, Any], config: Any, where: str) -> None:
    """Asks every part that has ``suits(config, **knobs)``; of a knob with a schedule about both ends.

    Args:
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        config: The engine's.
        where: Address of the section, for errors.

    Raises:
        RecipeError: As a part raises it, with its address.
    """
    for _, bound, address in standing(slots, where):
        target: Any = bound.target
        for end in ("start", "end") if isinstance(target, ValidatesConfig) else ():
            knobs = {name: getattr(x, end) if isinstance(x, Schedule) else x for name, x in bound.knobs.items()}
            with stands_at(address):
                target.validate(config, **knobs)
