"""The recipe in a capsule: one stage, with copies of its code and without paths of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlm_plugins.recipe.yaml_scalars import dump
from rlm_plugins.stage import Stage

_PLUGINS = "plugins"
PREVIOUS_STAGE = "the-stage-before"
"""Placeholder for the model of a later stage; a replay without the model does not load it."""


def capsule_recipe(stage: Stage) -> tuple[str, list[Path]]:
    """Return a stage as a recipe of its own in YAML, and the files with code that it names.

    Files become ``plugins/NAME``. Other absolute paths keep their last name only: a replay reads no data.
    """
    plugins, files = _plugins(stage.folder.parent), []
    for path in plugins.get("load", ()):
        files.append(stage.folder.parent / path)
    body = {key: _portable(value, files) for key, value in stage.body.items() if key != "capsule"}
    body["model"] = {"name": PREVIOUS_STAGE, **(body.get("model") or {})}
    section = {**plugins, "load": [f"{_PLUGINS}/{Path(path).name}" for path in plugins.get("load", ())]}
    non_empty = {key: value for key, value in section.items() if value}
    return dump({**({"plugins": non_empty} if non_empty else {}), **body, "name": "capsule"}), files


def _plugins(run: Path) -> dict[str, Any]:
    """Return the section ``plugins`` of the recipe of a run; empty without one."""
    try:
        document = yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    section = document.get("plugins") if isinstance(document, Mapping) else None
    return dict(section) if isinstance(section, Mapping) else {}


def _portable(value: Any, files: list[Path]) -> Any:
    """Return plain data without absolute paths; files with addressed functions are added to `files`."""
    if isinstance(value, Mapping):
        return {key: _portable(x, files) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_portable(x, files) for x in value]
    if not isinstance(value, str) or not Path(value).is_absolute():
        return value
    file, colon, function = value.rpartition(":")
    if colon and Path(file).is_file():
        files.append(Path(file))
        return f"{_PLUGINS}/{Path(file).name}:{function}"
    return Path(value).name
