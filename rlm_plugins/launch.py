"""``rlm train``: which recipe, which folder, and whether the run to go on with is the same one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rlm_plugins.compose import compose, resolved
from rlm_plugins.errors import RlmError
from rlm_plugins.paths import leaves, spell
from rlm_plugins.reading import read
from rlm_plugins.run import Run, fresh_folder
from rlm_plugins.train import folder_to_resume, origins, train

RUNS = Path("runs")
_ABSENT = object()


def launch(
    source: Path,
    overrides: Sequence[str],
    *,
    name: str | None = None,
    out: Path | None = None,
    resume: bool = False,
    allow_changed: bool = False,
) -> Run:
    """Trains a recipe, or goes on with a run of it.

    Args:
        source: A recipe, or the folder of a run.
        overrides: ``key=value``.
        name: What to call the run; by default what the recipe calls itself.
        out: Its folder; by default ``runs/NAME``, or ``runs/NAME-2``, … where that is taken.
        resume: Go on with the newest unfinished run of that name (or `out`, or `source` when that is a run).
        allow_changed: Go on although the recipe or a plugin has changed.

    Raises:
        RlmError: The recipe cannot be run, or there is nothing to go on with.
    """
    recipe, registry = read(source, overrides)
    wanted = out or RUNS / (name or recipe.name)
    if not resume:
        return train(recipe, registry, together(lambda: fresh_folder(wanted)))
    folder = together(lambda: _to_resume(source, out, name or recipe.name))
    if not allow_changed:
        stages = compose(recipe, registry)
        require_same(folder, resolved(stages, recipe), origins(stages, registry))
    return train(recipe, registry, folder, resume=True)


def together(decide: Callable[[], Path]) -> Path:
    """What the main process decides, on every process: alone, each might see the folder another one has just made."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return decide()
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    decided = [decide() if PartialState().is_main_process else None]
    return broadcast_object_list(decided)[0]


def require_same(folder: Path, document: Mapping[str, Any], plugins: Mapping[str, str]) -> None:
    """Whether a run would go on as what it was started as.

    Args:
        folder: The run.
        document: The recipe given now, resolved.
        plugins: Plugin name → version (or hash of the file), of the plugins in use now.

    Raises:
        RlmError: It lists every value that differs, then and now.
    """
    then = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
    now = yaml.safe_load(yaml.safe_dump(dict(document)))
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    changed = [*changes(then, now), *changes({"plugins": manifest["plugins"]}, {"plugins": dict(plugins)})]
    if changed:
        lines = "".join(f"\n    {address}: {old} in the run, {new} now" for address, old, new in changed)
        raise RlmError(
            f"the run was started with another recipe:{lines}",
            where=str(folder),
            hint=f"go on as it was with `rlm train {folder} --resume`, or say --allow-changed",
        )


def changes(then: Any, now: Any) -> list[tuple[str, str, str]]:
    """(address, old value, new value) wherever two documents differ; the name of the recipe does not count.

    >>> changes({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": None})
    [('a.c', '2', '3'), ('d', 'nothing', 'null')]
    """
    old, new = dict(leaves(then)), dict(leaves(now))
    addresses = [path for path in dict.fromkeys([*old, *new]) if path != ("name",)]
    pairs = [(path, old.get(path, _ABSENT), new.get(path, _ABSENT)) for path in addresses]
    return [(spell(path), _plain(a), _plain(b)) for path, a, b in pairs if a != b or type(a) is not type(b)]


def _plain(value: Any) -> str:
    return "nothing" if value is _ABSENT else json.dumps(value, ensure_ascii=False)


def _to_resume(source: Path, out: Path | None, name: str) -> Path:
    folder = out or (source if source.is_dir() else None) or folder_to_resume(RUNS, name)
    if not (folder / "recipe.yaml").is_file():
        raise RlmError("there is no run to go on with", where=str(folder), hint="leave --resume out to start one")
    return folder
