"""A run may only go on as what it was started as, unless it is said that it has changed."""

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
from rlm_plugins.run.train import origins

_ABSENT = object()


def go_on_with(folder: Path, recipe: Recipe, registry: Registry, *, allow_changed: bool) -> None:
    """Holds the recipe and the plugins of now against those of the run; allowed changes are written into it.

    Args:
        folder: The run.
        recipe: The recipe given now.
        registry: What it finds its parts in.
        allow_changed: Whether to go on as the new recipe says. The old one stays beside it as ``recipe.old.yaml``.

    Raises:
        RlmError: It lists every value that differs, then and now.
    """
    stages = compose(recipe, registry)
    document, plugins = resolved(stages, recipe), origins(stages, registry)
    changed = changes(*_then_and_now(folder, document, plugins))
    if changed and not allow_changed:
        lines = "".join(f"\n    {address}: {old} in the run, {new} now" for address, old, new in changed)
        raise RlmError(
            f"the run was started with another recipe:{lines}",
            where=str(folder),
            hint=f"go on as it was with `rlm train {folder} --resume`, or say --allow-changed",
        )
    if changed:
        shutil.copy(folder / "recipe.yaml", folder / "recipe.old.yaml")
        Run(folder).open(document, plugins, recipe.load)


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(address, old value, new value) wherever two documents differ; the name of the recipe does not count.

    >>> changes({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": None})
    [('a.c', '2', '3'), ('d', 'nothing', 'null')]
    """
    old, new = dict(leaves(then)), dict(leaves(now))
    addresses = [path for path in dict.fromkeys([*old, *new]) if path != ("name",)]
    pairs = [(path, old.get(path, _ABSENT), new.get(path, _ABSENT)) for path in addresses]
    return [(spell(path), _plain(a), _plain(b)) for path, a, b in pairs if a != b]


def _then_and_now(
    folder: Path, document: Mapping[str, Any], plugins: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Recipe and plugin versions of both, as they look after a trip through YAML."""
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    now = yaml.safe_load(yaml.safe_dump(dict(document)))
    return {**recipe, "version of": manifest["plugins"]}, {**now, "version of": dict(plugins)}


def _plain(value: object) -> str:
    return "nothing" if value is _ABSENT else json.dumps(value, ensure_ascii=False)
