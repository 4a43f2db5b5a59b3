"""The packages under `plugins/`: each registers through its entry point, and its recipes are valid."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from fake_plugins import register

from rlm_plugins.recipe import document as recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry


def project(package: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    return found


def required(package: Path, *, extras: bool) -> list[str]:
    """Return the names of the dependencies of a package, or of those of its extras."""
    known = project(package)
    lists = known.get("optional-dependencies", {}).values() if extras else [known["dependencies"]]
    return [re.split(r"[^\w-]", needed)[0] for needed in chain.from_iterable(lists)]


def missing(package: Path, *, extras: bool = False) -> list[str]:
    """Return dependencies and extras of the package that are not installed here."""
    return [name for name in required(package, extras=extras) if not list(metadata.distributions(name=name))]


FOLDERS = sorted(path.parent for path in (Path(__file__).parents[1] / "plugins").glob("*/pyproject.toml"))
PACKAGES = [folder for folder in FOLDERS if "rlm" in project(folder).get("entry-points", {})]
"""Those that offer parts; the others are what they are built on."""


@pytest.fixture(params=PACKAGES, ids=lambda package: package.name)
def package(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Register a package without pip, and those it requires: put `src` and a dist-info folder on ``sys.path``."""
    found: Path = request.param
    names = {found.name, *required(found, extras=False), *required(found, extras=True)}
    for each in (folder for folder in PACKAGES if folder.name in names):
        known = project(each)
        register(tmp_path, known["name"], known["version"], known["entry-points"]["rlm"])
        monkeypatch.syspath_prepend(str(each / "src"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return found


def test_package_registers_through_its_entry_point(package: Path) -> None:
    known, registry = project(package), Registry()
    assert not registry.broken()
    for name in known["entry-points"]["rlm"]:
        plugin = registry.plugins[name]
        assert plugin.error is None
        assert plugin.origin == f"{known['name']} {known['version']}"
        assert [part for part in registry if part.plugin == name], "it offers something"


def test_recipes_of_a_package_pass_every_check(package: Path) -> None:
    """Recipes that need a run (`runs/…`), a hub or an extra are checked by the tests of the package."""
    if lacks := missing(package):
        pytest.skip(f"not installed: {', '.join(lacks)}")
    absent = [" runs/", " Qwen/", *missing(package, extras=True)]
    written = sorted(package.glob("**/*.yaml"))
    recipes = [path for path in written if not any(x in path.read_text() for x in absent)]
    assert recipes or not written
    for path in recipes:
        assert compose(recipe.load(path), Registry())
