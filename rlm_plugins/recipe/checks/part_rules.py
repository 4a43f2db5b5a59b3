"""Checks of parts against the trainer's config, by their own `validate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_plugins.recipe.checks.address import prefixed_address
from rlm_plugins.recipe.checks.data_needs import iter_parts
from rlm_plugins.registry.protocols import ValidatesConfig
from rlm_plugins.schedule import Schedule

_TOKEN_SUMS = ("token_mean", "micro_batch_token_mean", "fixed_length")
"""Aggregators in which a completion counts by its number of tokens."""
_PER_SEQUENCE = ("sequence", "sequence_sum", "geometric_clipped", "group_expectation")
"""Ratios with one value per completion."""


def warnings_of(slots: Mapping[str, Any]) -> list[str]:
    """Return warnings about valid combinations of parts that are rarely intended.

    Args:
        slots: Key of ``algorithm:`` → part, None, or list of parts.
    """
    ratio, aggregator = slots.get("importance"), slots.get("aggregator")
    if ratio is None or aggregator is None:
        return []
    if ratio.part.name not in _PER_SEQUENCE or aggregator.part.name not in _TOKEN_SUMS:
        return []
    return [
        f"the ratio `{ratio.part.name}` is one per completion, and `{aggregator.part.name}` weights each sequence by "
        "its completion length: the gradient is not that of the per-sequence objective (`aggregator: sequence_mean`)"
    ]


def check_config_rules(slots: Mapping[str, Any], config: Any, where: str) -> None:
    """Call `validate(config, **knobs)` of every part that has it; a schedule is checked at both ends.

    Args:
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        config: The trainer's.
        where: Address of the section, for errors.

    Raises:
        RecipeError: As raised by the part, with its address.
    """
    for _, bound, address in iter_parts(slots, where):
        target: Any = bound.target
        for end in ("start", "end") if isinstance(target, ValidatesConfig) else ():
            knobs = {name: getattr(x, end) if isinstance(x, Schedule) else x for name, x in bound.knobs.items()}
            with prefixed_address(address):
                target.validate(config, **knobs)
