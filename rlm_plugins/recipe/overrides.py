"""Overrides of a recipe on the command line: ``key=value``."""

from __future__ import annotations

from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.messages import describe
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.recipe.draft import Draft
from rlm_plugins.recipe.inheritance import inherited
from rlm_plugins.recipe.list_entries import position
from rlm_plugins.recipe.paths import Path, format_path, parse_path
from rlm_plugins.recipe.validation import expand_names

COMMAND_LINE = "command line"


def parse_override(text: str) -> tuple[str, Any]:
    """Return the address and the value of ``key=value``.

    Raises:
        RecipeError: No ``=``, no address, or invalid YAML.
    """
    address, equals, value = text.partition("=")
    if not equals or "" in parse_path(address):
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
    *parents, last = parse_path(address)
    container, path = _follow(draft, parents)
    key = _key(draft, container, last, path)
    container[key] = value
    draft.mark(value, (*path, key), COMMAND_LINE)
    expand_names(draft)
    return (*path, key)


def _follow(draft: Draft, steps: list[str]) -> tuple[Any, Path]:
    container: Any = draft.data
    path: Path = ()
    for step in steps:
        key = _key(draft, container, step, path)
        if isinstance(container, dict) and key not in container:
            _create_mapping(draft, container, (*path, key))
        container, path = container[key], (*path, key)
    return container, path


def _create_mapping(draft: Draft, container: dict[str, Any], path: Path) -> None:
    """Create the mapping at `path`: the section that a stage inherits, or an empty one."""
    *parents, key = path
    if parents[:1] == ["stages"] and (section := inherited(draft, tuple(parents), str(key))) is not None:
        container[str(key)] = section
        return
    if key in ("stages", "rewards", "callbacks") and (not parents or parents[0] == "stages"):
        raise draft.error("is not in this recipe", path, hint=f"give it as a whole: `{format_path(path)}=[…]`")
    container[str(key)] = {}
    draft.origins[path] = COMMAND_LINE


def _key(draft: Draft, container: Any, step: str, path: Path) -> str | int:
    if isinstance(container, dict):
        return step
    if not isinstance(container, list):
        raise draft.error(f"unknown key '{step}' of {describe(container)}", path)
    try:
        return position(container, step)
    except RecipeError as error:
        raise draft.error(error.problem, path, allowed=error.allowed, hint=error.hint) from None
