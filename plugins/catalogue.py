"""The tables of rewards and worlds in README.md and plugins/README.md, from the registry.

    python plugins/catalogue.py      # or: make tables

Writes them anew between their markers; `tests/test_catalogue.py` fails while they are not what this would write. The
packages need not be installed.
"""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

from rlm_plugins.cli import plugins as listing
from rlm_plugins.registry import Registry
from rlm_plugins.registry import registry as core
from rlm_plugins.registry.loading import Found, Plugin

HERE = Path(__file__).parent
PAGES = {HERE.parent / "README.md": "overview", HERE / "README.md": "parts"}
"""Page → the table in it, between ``<!-- table: NAME -->`` and ``<!-- end -->``."""
FIRST = ("environment", "rewards")
"""What a package is looked for; its other kinds of part are told together."""
BUILT_IN = ("built in", "rlm_plugins/builtin", "What needs nothing but the core, and guests from other libraries.")


@dataclass(frozen=True)
class Shelf:
    """A package and what it offers.

    Args:
        name, folder, about: Of the package; the folder from the root of the repository.
        parts: Recipe key → entries of name and one line.
    """

    name: str
    folder: str
    about: str
    parts: dict[str, list[listing.Entry]]


def shelves() -> list[Shelf]:
    """What is built in, then every package of this folder that is a plugin, by name."""
    packages = dict(_packages())

    def installed() -> list[Found]:
        return [(Plugin(name, shelf[0]), partial(importlib.import_module, m)) for name, (shelf, m) in packages.items()]

    with patch.object(core, "installed", installed):
        registry = Registry()
    registry.require_sound()
    return [
        Shelf(*(packages[plugin["name"]][0] if plugin["name"] in packages else BUILT_IN), plugin["parts"])
        for plugin in listing.plugins(registry)
    ]


def _packages() -> Iterator[tuple[str, tuple[tuple[str, str, str], str]]]:
    """Entry point → (name, folder, description) of its package, and its module, which can be imported from now on."""
    for file in sorted(HERE.glob("*/pyproject.toml")):
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        sys.path.append(str(file.parent / "src"))
        about = project["description"].removesuffix("; for rlm-plugins.").removesuffix(".") + "."
        for name, module in project.get("entry-points", {}).get("rlm", {}).items():
            yield name, ((project["name"], f"plugins/{file.parent.name}", about), module)


def overview(found: list[Shelf]) -> str:
    """One line per package: what it is for, and the names of its parts."""
    lines = ["| package | for | worlds | rewards | and |", "|---|---|---|---|---|"]
    for shelf in found:
        worlds, rewards = (_names(shelf.parts.get(key, [])) for key in FIRST)
        others = "" if shelf.name == BUILT_IN[0] else _others(shelf)
        lines.append(f"| [{shelf.name}]({shelf.folder}) | {shelf.about} | {worlds} | {rewards} | {others} |")
    return "\n".join(lines)


def _others(shelf: Shelf) -> str:
    return "; ".join(f"{key}: {_names(entries)}" for key, entries in shelf.parts.items() if key not in FIRST)


def _names(entries: list[listing.Entry]) -> str:
    return ", ".join(f"`{entry['name']}`" for entry in entries) or "–"


def parts(found: list[Shelf]) -> str:
    """A table per package: every part with its recipe key and its first sentence."""
    tables = []
    for shelf in found:
        kept = {key: x for key, x in shelf.parts.items() if key in FIRST or shelf.name != BUILT_IN[0]}
        rows = [f"| {key} | `{e['name']}` | {_cell(e['about'])} |" for key, entries in kept.items() for e in entries]
        folder = shelf.folder.removeprefix("plugins/") if shelf.folder.startswith("plugins/") else f"../{shelf.folder}"
        tables.append(
            f"## [{shelf.name}]({folder})\n\n{shelf.about}\n\n| key | name | |\n|---|---|---|\n" + "\n".join(rows)
        )
    return "\n\n".join(tables)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


TABLES = {"overview": overview, "parts": parts}


def written(page: Path, found: list[Shelf]) -> str:
    """The page with its table as the registry has it."""
    name = PAGES[page]
    between = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.S)
    text, count = between.subn(lambda m: f"{m[1]}\n{TABLES[name](found)}\n\n{m[2]}", page.read_text(encoding="utf-8"))
    if count != 1:
        raise SystemExit(f"{page.name}: there must be one `<!-- table: {name} -->` … `<!-- end -->`, found {count}")
    return text


if __name__ == "__main__":
    everything = shelves()
    for page in PAGES:
        page.write_text(written(page, everything), encoding="utf-8")
