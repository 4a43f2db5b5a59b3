"""The tables of rewards and environments match the registry."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from rlm_plugins.registry.registry import PACKAGES

PLUGINS = Path(__file__).parents[1] / "plugins"


@pytest.fixture(scope="module")
def catalog() -> Any:
    before = list(sys.path)
    yield runpy.run_path(str(PLUGINS / "catalog.py"))
    sys.path[:] = before


@pytest.fixture(scope="module")
def packages(catalog: Any) -> Any:
    return catalog["packages"]()


def test_the_tables_match_the_registry(catalog: Any, packages: Any) -> None:
    page = PLUGINS / "README.md"
    assert page.read_text(encoding="utf-8") == catalog["updated"](page, packages), "run `make tables`"


def test_the_table_of_missing_parts_matches_the_registry(catalog: Any, packages: Any) -> None:
    assert PACKAGES.read_text(encoding="utf-8") == catalog["offered"](packages), "run `make tables`"


def test_every_plugin_package_has_its_line(catalog: Any, packages: Any) -> None:
    plugins = {file.parent.name for file in PLUGINS.glob("*/pyproject.toml") if "entry-points.rlm]" in file.read_text()}
    lines = catalog["overview"](packages)
    assert plugins == {name for name in plugins if f"]({name})" in lines}
