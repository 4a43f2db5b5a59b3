"""Checks of rollout sources: their share of a group, and the terms that name them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.recipe.checks.names import names_in
from rlm_plugins.recipe.paths import Path, spell
from rlm_plugins.registry.part import Bound
from rlm_plugins.rollout.group_layout import labels, owners


def check_sources(slots: Mapping[str, Any], place: Path) -> None:
    """Check that labels of sources are unique, and that every named source exists.

    A term names it by the key ``source``; a shaper, filter or advantage by a knob.

    Args:
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        place: Address of the stage.

    Raises:
        RecipeError: It names the term and the sources.
    """
    where = spell((*place, "algorithm"))
    known = labels(slots["rollouts"], f"{where}.rollouts")
    for term, address in _terms(slots, where):
        beside = [(".source", term.beside["source"])] if "source" in term.beside else []
        for inside, named in (*beside, *names_in(term, "source")):
            if named not in known:
                raise RecipeError(
                    f"unknown source '{named}' in `{term.part.name}`",
                    where=address + inside,
                    allowed=", ".join(known),
                    hint=nearest(named, known) or f"add it to `rollouts`: `[{{name: {named}, num_completions: 1}}]`",
                )


def check_rows_fit(slots: Mapping[str, Any], config: Any, place: Path) -> None:
    """Check that the sources fit into a group.

    Args:
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        config: The trainer's; one without ``num_generations`` has no groups.
        place: Address of the stage.

    Raises:
        RecipeError: They take more completions than a group has, or the trainer generates none.
    """
    where = spell((*place, "algorithm", "rollouts"))
    if slots["rollouts"] and not hasattr(config, "num_generations"):
        raise RecipeError("this trainer generates no completions", where=where, hint="leave `rollouts` out")
    if slots["rollouts"]:
        owners(slots["rollouts"], config.num_generations, where)


def _terms(slots: Mapping[str, Any], where: str) -> Iterator[tuple[Bound, str]]:
    for slot, chosen in slots.items():
        if isinstance(chosen, list):
            yield from ((part, f"{where}.{slot}[{i}]") for i, part in enumerate(chosen))
        elif chosen is not None:
            yield chosen, f"{where}.{slot}"
