"""The argument RECIPE of a command: a recipe file or the folder of a run, and consent to its foreign code.

``--trust`` trusts what a recipe runs and remembers it; ``RLM_TRUST=1`` trusts without remembering (for CI).
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import typer

from rlm_plugins.durable.files import write_file
from rlm_plugins.errors import RlmError, visible
from rlm_plugins.recipe import document as recipes
from rlm_plugins.recipe import yaml_strict
from rlm_plugins.recipe.document import Recipe
from rlm_plugins.recipe.foreign_code import RECEIVERS, ForeignCode, foreign_code, installed_plugins
from rlm_plugins.registry import Registry
from rlm_plugins.registry.loading import Limits, canonical, limit
from rlm_plugins.report.text_layout import columns, printable, titled
from rlm_plugins.run.folder import MANIFEST
from rlm_plugins.run.manifest import check_code, check_links
from rlm_plugins.workers.distributed import num_launched

VARIABLE = "RLM_TRUST"
_granted: set[str] = set()
"""Identities that this process trusts, where the file of remembered ones cannot be written."""
_grants_all = False
_run_folders: set[Path] = set()


def grant_all() -> None:
    """Trust the code of the recipes that this process reads from now on."""
    global _grants_all
    _grants_all = True


def code_of(recipe: Recipe) -> list[ForeignCode]:
    """Return the code that a recipe or the recipe of a run executes."""
    return foreign_code(recipe, is_run=recipe.path.parent in _run_folders)


def require_trust(recipe: Recipe, *, is_run: bool = False) -> None:
    """Return if the user trusts the code that a recipe runs, and limit its addresses to that code."""
    if is_run:
        _run_folders.add(recipe.path.parent)
    code = code_of(recipe)
    unknown = [entry for entry in code if entry.identity not in remembered()]
    if unknown and not (_grants_all or os.environ.get(VARIABLE) == "1"):
        typer.echo(visible(report(code)), err=True)
        if not _confirmed(recipe):
            sends = " or sends data" if any(entry.kind in RECEIVERS for entry in unknown) else ""
            raise RlmError(
                f"it runs code{sends} that is not trusted: {', '.join(map(_name, unknown))}",
                where=str(recipe.path),
                hint="read this code, then repeat the command with --trust; it is remembered until the code changes",
            )
    if unknown and os.environ.get(VARIABLE) != "1":
        _remember(unknown)
    files = {Path(entry.name): entry.version for entry in code if entry.kind == "file"}
    functions = {canonical(entry.name): entry.version for entry in code if entry.kind == "function"}
    limit(Limits(files, frozenset(recipe.packages), functions))


def report(code: Sequence[ForeignCode]) -> str:
    """Return a table of the code that a recipe runs, and of the installed plugins."""
    trusted = remembered()
    rows = [
        (x.kind, printable(x.name), printable(_version(x)), "trusted" if x.identity in trusted else "new") for x in code
    ]
    text = titled("foreign code", columns(rows) if rows else "  none").lstrip()
    return text + titled("installed plugins", f"  {', '.join(installed_plugins()) or 'none'}")


def _version(code: ForeignCode) -> str:
    version = f"sha256:{code.version}" if code.kind in ("file", "function") else code.version
    return " ".join((version, *code.addresses))


def _name(code: ForeignCode) -> str:
    return printable(Path(code.name).name if code.kind in ("file", "function") else f"{code.kind} {code.name}")


def _confirmed(recipe: Recipe) -> bool:
    """Ask, if there is a terminal and one process."""
    if not (num_launched() == 1 and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return typer.confirm(f"\nDoes {printable(recipe.path.name)} have your trust to run this code?", err=True)


def trust_file() -> Path:
    """Return the file of remembered code: ``rlm-plugins/trusted.json`` in the user's cache folder."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "rlm-plugins" / "trusted.json"


def remembered() -> set[str]:
    """Return the identities that the user trusts; a damaged file counts as empty."""
    try:
        names = json.loads(trust_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        names = []
    return _granted | ({name for name in names if isinstance(name, str)} if isinstance(names, list) else set())


def _remember(code: Sequence[ForeignCode]) -> None:
    _granted.update(entry.identity for entry in code)
    file = trust_file()
    with contextlib.suppress(OSError, RlmError):  # a read-only home: this process remembers
        file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, json.dumps(sorted(remembered()), indent=1))


def read(source: Path, overrides: Sequence[str] | None, allow_changed: Collection[str] = ()) -> tuple[Recipe, Registry]:
    """Return a recipe and a registry with the plugins it loads, once its code is trusted and, of a run, unchanged.

    The source is a YAML file, or a folder with a ``recipe.yaml``.
    """
    is_folder = source.is_dir()
    if is_folder:
        source = _recipe_of(source, "name a recipe (YAML), or the folder of a run: `runs/NAME`")
    recipe = recipes.load(source, overrides or ())
    if is_folder:
        check_code(source.parent, recipe, allow_changed)
    is_run = source.name == "recipe.yaml" and (source.parent / MANIFEST).is_file()
    require_trust(recipe, is_run=is_folder or is_run)
    return recipe, Registry(recipe.load, recipe.block)


def recorded(folder: Path, command: str) -> Any:
    """Return the resolved recipe of a run as plain data, without composing it."""
    return yaml_strict.read(_recipe_of(folder, f"`{command}`")).data


def _recipe_of(folder: Path, hint: str) -> Path:
    """Return the recipe of a run, whose links point into its folder."""
    recipe = folder / "recipe.yaml"
    if not recipe.is_file():
        raise RlmError(f"expected the folder of a run: there is no {recipe}", where=str(folder), hint=hint)
    check_links(folder)
    return recipe
