"""Migration of older runs: renames in the recipe of a run folder, so that the run resumes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlm_plugins.algorithm import SLOTS
from rlm_plugins.durable.files import write_file
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.recipe.yaml_scalars import dump
from rlm_plugins.renamed import KEYS, KNOBS, PARTS, VALUES

BACKUP = "recipe.old.yaml"
"""File with a copy of the recipe before the migration."""
_PARTS = {**PARTS, "generator/fast": "fastgen/fast"}
"""Names of parts; ``fast`` was a built-in part, and those of packages are recorded in full."""


def migrate(folder: Path) -> None:
    """Replace renamed keys, parts, knobs and values in the recipe of a run; does nothing where none was renamed.

    A recipe that a user wrote, in a folder without a manifest, stays as it is: there an old name is an error.
    """
    path = folder / "recipe.yaml"
    if not (path.is_file() and (folder / "manifest.json").is_file()):
        return
    try:
        recorded = yaml_strict.read(path).data
    except RecipeError:
        return  # reported with its line when the recipe is loaded
    current = with_current_names(recorded)
    if current != recorded:
        write_file(folder / BACKUP, path.read_bytes())
        write_file(path, dump(current))


def with_current_names(document: dict[str, Any]) -> dict[str, Any]:
    """Return a resolved recipe with the current names.

    >>> with_current_names({"speed": {"packed": True}, "algorithm": {"name": "grpo", "policy_loss": {"name": "plain"}}})
    {'speed': {'padding_free': True}, 'algorithm': {'name': 'grpo', 'policy_loss': {'name': 'unclipped'}}}
    """
    body = {key: _section(key, value) for key, value in document.items()}
    if "stages" in body:
        body["stages"] = [with_current_names(stage) for stage in body["stages"]]
    return body


def _section(key: str, value: Any) -> Any:
    if key == "speed" and isinstance(value, dict):
        return _with_keys(key, value)
    if key == "algorithm" and isinstance(value, dict):
        slots = {slot: _section(slot, part) if slot in SLOTS else part for slot, part in value.items()}
        return {**slots, "name": _PARTS.get(f"{key}/{value['name']}", value["name"])}
    if key not in (*SLOTS, "rewards", "generator", "callbacks"):
        return value
    return [_part(key, part) for part in value] if isinstance(value, list) else _part(key, value)


def _part(key: str, part: Any) -> Any:
    if isinstance(part, str):
        return _PARTS.get(f"{key}/{part}", part)
    if not isinstance(part, dict):
        return part
    renamed = _with_keys(key, {**part, "name": _part(key, part.get("name"))})
    if key not in SLOTS:
        return renamed  #  all renamed knobs are those of algorithms; a reward may have a knob `most`
    knobs = {KNOBS.get(name, name): value for name, value in renamed.items()}
    return {name: _value(name, value) for name, value in knobs.items()}


def _value(knob: str, value: Any) -> Any:
    return VALUES.get(knob, {}).get(value, value) if isinstance(value, str) else value


def _with_keys(section: str, mapping: dict[str, Any]) -> dict[str, Any]:
    return {KEYS.get(f"{section}.{key}", key): value for key, value in mapping.items()}
