"""Resume check: a run is resumed from the same recipe, code, data and versions, unless changes are allowed by key."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rlm_plugins.durable.files import file_errors, write_file
from rlm_plugins.durable.sealed import seal_digest
from rlm_plugins.errors import RlmError, nearest
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.recipe.foreign_code import foreign_code
from rlm_plugins.recipe.paths import format_path, leaves
from rlm_plugins.registry import Registry
from rlm_plugins.run.folder import DONE, Run
from rlm_plugins.run.manifest import code_of, manifest_of
from rlm_plugins.stage import Stage

_ABSENT = object()
_COMPARED = ("processes", "version", "packages", "code", "data", "files", "result")
BACKUP = "recipe.old.yaml"
"""File with the recipe of a run before changes were allowed."""

Change = tuple[str, str, str]
"""Key, value in the run, value now."""


def check_resumable(folder: Path, recipe: Recipe, registry: Registry, *, allow_changed: Collection[str] = ()) -> None:
    """Compare the inputs of a run with the current ones, and write allowed changes into its folder.

    Args:
        folder: The run.
        recipe: The current recipe.
        registry: Supplies its parts.
        allow_changed: Keys that may differ, each with all keys below it; the old recipe is kept.

    Raises:
        RlmError: Values differ that may not; all are listed.
    """
    run, stages = Run(folder), compose(recipe, registry)
    recorded, current = run.manifest(), manifest_of(stages, recipe, registry)
    entries = {key: recorded.get(key, {}) for key in _COMPARED}
    old = {**recorded["recipe"], **entries, "result": _recorded_results(folder)}
    new = current["recipe"] | {key: current[key] for key in _COMPARED if key in current}
    new["packages"] = {name: version for name, version in new["packages"].items() if name in old["packages"]}
    new["result"] = {name: seal_digest(_output(folder, stages, name)) for name in old["result"]}
    changed = changes(old, new)
    refuse(folder, changed, allow_changed)
    for key, before, now in changes(_numeric(recorded), _numeric(current)):
        run.log_line(f"{folder}: {key}: {before} in the run, {now} now; results are then equal except for rounding")
    if (count := next((change for change in changed if change[0] == "processes"), None)) is not None:
        run.log_line(
            f"{folder}: processes: {count[1]} before, {count[2]} now; the random numbers start again from the seed"
        )
    if any(not key.startswith("result.") for key, *_ in changed):
        write_file(folder / BACKUP, (folder / "recipe.yaml").read_bytes())
        history = [*recorded.get("changes", ()), *({"key": k, "old": a, "new": b} for k, a, b in changed)]
        unchanged: dict[str, Any] = {key: recorded[key] for key in ("id", "started", "stages") if key in recorded}
        run.open({**current, **unchanged, "changes": history}, recipe.load)


def _numeric(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a machine that change the rounding of sums."""
    hardware = manifest.get("hardware", {})
    return {f"hardware.{key}": hardware.get(key) for key in ("machine", "threads", "accelerators")}


def refuse(folder: Path, changed: Sequence[Change], allowed: Collection[str]) -> None:
    """Raise an error that lists the changes, unless all are allowed.

    Raises:
        RlmError: Some are not, or an allowed key is none of the recipe.
    """
    refused = [change for change in changed if not _is_allowed(change[0], allowed)]
    if not refused:
        return
    lines = "".join(f"\n    {key}: {_short(old)} in the run, {_short(new)} now" for key, old, new in refused)
    changed_keys = [key for key, *_ in changed]
    refused_keys = [key for key, *_ in refused]
    unused = [key for key in allowed if not any(map(partial(_covers, key), changed_keys))]
    hints = filter(None, (nearest(key, refused_keys) for key in unused))
    guess = "".join(f"; {hint}" for hint in hints)
    keys = " ".join(f"--allow-changed '{key}'" for key, *_ in refused[:4])
    raise RlmError(
        f"the run was started with something else:{lines}",
        where=str(folder),
        hint=f"resume with what the run was started with, or allow each change: {keys}{guess}",
    )


def check_code(folder: Path, recipe: Recipe, allowed: Collection[str] = ()) -> None:
    """Compare the code of a run's recipe with that at the start of the run; nothing is executed.

    Raises:
        RlmError: A file differs, or a link leads out of the run folder.
    """
    check_links(folder)
    if not (folder / "manifest.json").exists():
        return
    recorded = Run(folder).manifest().get("code")
    if isinstance(recorded, dict):
        current = code_of(foreign_code(recipe, is_run=True))
        refuse(folder, changes({"code": recorded}, {"code": current}), allowed)


def check_links(folder: Path) -> None:
    """Check that a run folder has only files and folders, and that links point into it.

    Raises:
        RlmError: A link leads out, or there is a pipe, socket or device.
    """
    root = folder.resolve()
    with file_errors(folder, "read"):
        for parent, folders, files in os.walk(folder):
            for name in (*folders, *files):
                _check_path(Path(parent) / name, root)


def _check_path(path: Path, root: Path) -> None:
    if not (path.is_symlink() or path.is_dir() or path.is_file()):
        hint = "remove it: a reader would wait for ever"
        raise RlmError("expected a file or folder, got a pipe, socket or device", where=str(path), hint=hint)
    if path.is_symlink() and not path.resolve().is_relative_to(root):
        hint = "remove this link: a run reads and writes in its own folder only"
        raise RlmError(f"this link leads out of the run folder, to {path.resolve()}", where=str(path), hint=hint)


def changes(recorded: Mapping[str, Any], current: Mapping[str, Any]) -> list[Change]:
    """Return every difference of two documents, except the name of the recipe.

    >>> changes({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}, "d": None})
    [('a.c', '2', '3'), ('d', 'nothing', 'null')]
    """
    old, new = dict(leaves(recorded)), dict(leaves(current))
    paths = [path for path in dict.fromkeys([*old, *new]) if path != ("name",)]
    pairs = [(path, old.get(path, _ABSENT), new.get(path, _ABSENT)) for path in paths]
    return [(format_path(path), _text(a), _text(b)) for path, a, b in pairs if a != b]


def _output(folder: Path, stages: Sequence[Stage], name: str) -> Path:
    return next((folder / name / stage.output.name for stage in stages if stage.name == name), folder / name)


def _recorded_results(folder: Path) -> dict[str, str]:
    """Return stage → digest of its result, of the finished stages."""
    digests = {}
    for file in folder.glob(f"*/{DONE}"):
        try:
            digests[file.parent.name] = json.loads(file.read_bytes())["result"]
        except (OSError, ValueError, LookupError, TypeError):
            continue
    return {name: digest for name, digest in digests.items() if isinstance(digest, str) and digest}


def _is_allowed(changed: str, allowed: Collection[str]) -> bool:
    return any(_covers(key, changed) for key in allowed)


def _covers(key: str, changed: str) -> bool:
    return changed == key or changed.startswith((f"{key}.", f"{key}["))


def _text(value: object) -> str:
    return "nothing" if value is _ABSENT else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:24]}…{text[-4:]}"
