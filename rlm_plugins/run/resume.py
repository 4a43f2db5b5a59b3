"""Resume check: a run is resumed with the recipe and plugins it was started with, unless changes are allowed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlm_plugins.errors import RlmError
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.compose import compose, resolved
from rlm_plugins.recipe.paths import leaves, spell
from rlm_plugins.registry import Registry
from rlm_plugins.run.folder import Run
from rlm_plugins.run.migration import migrate
from rlm_plugins.run.train import origins

_ABSENT = object()


def check_resumable(folder: Path, recipe: Recipe, registry: Registry, *, allow_changed: bool) -> None:
    """Compare the recipe and the plugins with those of the run; allowed changes are written into its folder.

    Args:
        folder: The run.
        recipe: The current recipe.
        registry: Supplies its parts.
        allow_changed: True to resume with the current recipe; the old one is kept as ``recipe.old.yaml``.

    Raises:
        RlmError: Values differ that may not; all are listed.
    """
    migrate(folder)
    stages = compose(recipe, registry)
    document, plugins = resolved(stages, recipe), origins(stages, registry)
    changed = changes(*_recorded_and_current(folder, document, plugins))
    if changed and not allow_changed:
        lines = "".join(f"\n    {address}: {old} in the run, {new} now" for address, old, new in changed)
        raise RlmError(
            f"the run was started with another recipe:{lines}",
            where=str(folder),
            hint=f"resume with the recipe of the run: `rlm train {folder} --resume`, or add --allow-changed",
        )
    if changed:
        shutil.copy(folder / "recipe.yaml", folder / "recipe.old.yaml")
        Run(folder).open(document, plugins, recipe.load)


def changes(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (path, old value, new value) of every difference of two documents, except the name of the recipe.

    >>> changes({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": None})
    [('a.c', '2', '3'), ('d', 'nothing', 'null')]
    """
    old, new = dict(leaves(recorded)), dict(leaves(current))
    paths = [path for path in dict.fromkeys([*old, *new]) if path != ("name",)]
    pairs = [(path, old.get(path, _ABSENT), new.get(path, _ABSENT)) for path in paths]
    return [(spell(path), _plain(a), _plain(b)) for path, a, b in pairs if a != b]


def _recorded_and_current(
    folder: Path, document: Mapping[str, Any], plugins: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return recipe and plugin versions of the run and of now, both as YAML represents them."""
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    current = yaml.safe_load(yaml.safe_dump(dict(document)))
    return {**recipe, "version of": manifest["plugins"]}, {**current, "version of": dict(plugins)}


def _plain(value: object) -> str:
    return "nothing" if value is _ABSENT else json.dumps(value, ensure_ascii=False)
