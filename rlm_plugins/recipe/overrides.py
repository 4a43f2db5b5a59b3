"""Overrides of a recipe on the command line: ``key=value``."""

from __future__ import annotations

from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.messages import describe
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.recipe.draft import Draft
from rlm_plugins.recipe.inheritance import inherited
from rlm_plugins.recipe.list_entries import position
from rlm_plugins.recipe.paths import Path, spell, split
from rlm_plugins.recipe.validation import spell_out

COMMAND_LINE = "command line"


def parse_override(text: str) -> tuple[str, Any]:
    """Return the address and the value of ``key=value``.

    Raises:
        RecipeError: No ``=``, no address, or invalid YAML.
    """
    address, equals, value = text.partition("=")
    if not equals or "" in split(address):
        raise RecipeError("expected `key=value`", where=f"{COMMAND_LINE}: {text}")
    return address, yaml_strict.parse(value, f"{COMMAND_LINE}: {address}").data


def apply(draft: Draft, text: str) -> Path:
    """Set one value, in place; missing mappings are created, entries of lists must exist.

    Args:
        draft: The recipe.
        text: ``algorithm.policy_loss.epsilon=0.3``. Entries of lists go by position or name: ``rewards.0.weight=2``,
            ``rewards.accuracy.weight=2``. The value is parsed like any value of a recipe.

    Returns:
        The address that was set.

    Raises:
        RecipeError: No ``=``, invalid YAML, or an unknown address.
    """
    address, value = parse_override(text)
    *way, last = split(address)
    here, path = _follow(draft, way)
    key = _key(draft, here, last, path)
    here[key] = value
    draft.mark(value, (*path, key), COMMAND_LINE)
    spell_out(draft)
    return (*path, key)


def _follow(draft: Draft, way: list[str]) -> tuple[Any, Path]:
    here: Any = draft.data
    path: Path = ()
    for step in way:
        key = _key(draft, here, step, path)
        if isinstance(here, dict) and key not in here:
            _make(draft, here, (*path, key))
        here, path = here[key], (*path, key)
    return here, path


def _make(draft: Draft, here: dict[str, Any], path: Path) -> None:
    """Create the mapping at `path`: the section that a stage inherits, or an empty one."""
    *place, key = path
    if place[:1] == ["stages"] and (section := inherited(draft, tuple(place), str(key))) is not None:
        here[str(key)] = section
        return
    if key in ("stages", "rewards", "callbacks") and (not place or place[0] == "stages"):
        raise draft.error("is not in this recipe", path, hint=f"give it as a whole: `{spell(path)}=[…]`")
    here[str(key)] = {}
    draft.origins[path] = COMMAND_LINE


def _key(draft: Draft, here: Any, step: str, path: Path) -> str | int:
    if isinstance(here, dict):
        return step
    if not isinstance(here, list):
        raise draft.error(f"unknown key '{step}' of {describe(here)}", path)
    try:
        return position(here, step)
    except RecipeError as error:
        raise draft.error(error.problem, path, allowed=error.allowed, hint=error.hint) from None
