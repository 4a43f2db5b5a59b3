"""Checks of rollout sources: their share of a group, and the terms that name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.recipe.checks.data_needs import iter_parts
from rlm_plugins.recipe.checks.names import names_in
from rlm_plugins.recipe.paths import Path, format_path
from rlm_plugins.rollout.group_layout import assign_sources, labels


def check_sources(slots: Mapping[str, Any], stage_path: Path) -> None:
    """Check that labels of sources are unique, and that every named source exists.

    A term names it by the key ``source``; a shaper, filter or advantage by a knob.

    Args:
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        stage_path: Address of the stage.

    Raises:
        RecipeError: It names the term and the sources.
    """
    where = format_path((*stage_path, "algorithm"))
    valid = labels(slots["rollouts"], f"{where}.rollouts")
    for _, term, address in iter_parts(slots, where):
        option = [(".source", term.options["source"])] if "source" in term.options else []
        for suffix, source in (*option, *names_in(term, "source")):
            if source not in valid:
                raise RecipeError(
                    f"unknown source '{source}' in `{term.part.name}`",
                    where=address + suffix,
                    allowed=", ".join(valid),
                    hint=nearest(source, valid) or f"add it to `rollouts`: `[{{name: {source}, num_completions: 1}}]`",
                )


def check_rows_fit(slots: Mapping[str, Any], config: Any, stage_path: Path) -> None:
    """Check that the sources fit into a group.

    Args:
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        config: The trainer's; one without ``num_generations`` has no groups.
        stage_path: Address of the stage.

    Raises:
        RecipeError: They take more completions than a group has, or the trainer generates none.
    """
    where = format_path((*stage_path, "algorithm", "rollouts"))
    if slots["rollouts"] and not hasattr(config, "num_generations"):
        raise RecipeError("this trainer generates no completions", where=where, hint="leave `rollouts` out")
    if slots["rollouts"]:
        assign_sources(slots["rollouts"], config.num_generations, where)
