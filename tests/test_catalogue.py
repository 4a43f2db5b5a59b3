"""The tables of rewards and worlds are what the registry holds."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

PLUGINS = Path(__file__).parents[1] / "plugins"


@pytest.fixture(scope="module")
def catalogue() -> Any:
    before = list(sys.path)
    yield runpy.run_path(str(PLUGINS / "catalogue.py"))
    sys.path[:] = before


@pytest.fixture(scope="module")
def found(catalogue: Any) -> Any:
    return catalogue["shelves"]()


@pytest.mark.parametrize("page", ["README.md", "plugins/README.md"])
def test_a_page_shows_what_is_there(page: str, catalogue: Any, found: Any) -> None:
    path = PLUGINS.parent / page
    assert path.read_text(encoding="utf-8") == catalogue["written"](path, found), "say `make tables`"


def test_every_package_with_a_reward_or_a_world_has_its_line(catalogue: Any, found: Any) -> None:
    plugins = {file.parent.name for file in PLUGINS.glob("*/pyproject.toml") if "entry-points.rlm]" in file.read_text()}
    lines = catalogue["overview"](found)
    assert plugins == {name for name in plugins if f"](plugins/{name})" in lines}


def test_a_page_without_its_place_is_told(catalogue: Any, found: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("no markers")
    catalogue["PAGES"][page] = "parts"
    with pytest.raises(SystemExit, match=r"there must be one `<!-- table: parts -->`"):
        catalogue["written"](page, found)
