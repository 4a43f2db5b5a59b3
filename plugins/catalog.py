"""The tables of rewards and environments in plugins/README.md, generated from the registry.

    python plugins/catalog.py      # or: make tables

Rewrites them between their markers, and the table from which an error names the package of a missing part;
`tests/test_catalog.py` fails if they are out of date. The packages need not be
installed.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

from rlm_lab import plugin_list as listing

from rlm_plugins.durable.files import write_file
from rlm_plugins.registry import Registry
from rlm_plugins.registry import registry as core
from rlm_plugins.registry.loading import Plugin, PluginLoader
from rlm_plugins.registry.registry import PACKAGES

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
COLUMNS = ("environment", "rewards")
"""Recipe keys with a column in the overview."""
BUILT_IN = (
    "built in",
    "../rlm_plugins/builtin",
    "Parts without extra dependencies, and adapters for other libraries.",
)


@dataclass(frozen=True)
class Package:
    """A package and its parts.

    Args:
        name, folder, about: Of the package; the folder relative to the page.
        parts: Recipe key → entries with name and one line.
    """

    name: str
    folder: str
    about: str
    parts: dict[str, list[listing.Entry]]


def packages() -> list[Package]:
    """Return the built-in parts, then every plugin package of this folder, by name."""
    known = dict(_plugin_packages())

    def installed() -> list[PluginLoader]:
        return [(Plugin(name, about[0]), partial(importlib.import_module, m)) for name, (about, m) in known.items()]

    with patch.object(core, "installed", installed):
        registry = Registry()
    assert not registry.broken()
    listed = []
    for plugin in listing.plugins(registry):
        about = known[plugin["name"]][0] if plugin["name"] in known else BUILT_IN
        listed.append(Package(*about, plugin["parts"]))
    return listed


def _plugin_packages() -> Iterator[tuple[str, tuple[tuple[str, str, str], str]]]:
    """Yield entry point → (name, folder, description) and module of each package, and make the module importable."""
    for file in sorted(HERE.glob("*/pyproject.toml")):
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        sys.path.append(str(file.parent / "src"))
        about = project["description"].removesuffix("; for rlm-plugins.").removesuffix(".") + "."
        for name, module in project.get("entry-points", {}).get("rlm", {}).items():
            yield name, ((project["name"], file.parent.name, about), module)


def overview(listed: list[Package]) -> str:
    """Return a table with one line per package: its subject, environments and rewards."""
    lines = ["| package | subject | environments | rewards |", "|---|---|---|---|"]
    for package in listed:
        environments, rewards = (_names(package.parts.get(key, [])) for key in COLUMNS)
        lines.append(f"| [{package.name}]({package.folder}) | {package.about} | {environments} | {rewards} |")
    return "\n".join(lines)


def _names(entries: list[listing.Entry]) -> str:
    return ", ".join(f"`{entry['name']}`" for entry in entries) or "–"


def parts(listed: list[Package]) -> str:
    """Return a table per package: every part with its recipe key and the first sentence of its docstring."""
    tables = []
    for package in listed:
        built_in = package.name == BUILT_IN[0]
        rows = ["| key | name | |", "|---|---|---|"]
        for key, entries in package.parts.items():
            if key in COLUMNS or not built_in:  # `rlm explain` has the other built-in parts
                rows += [f"| {key} | `{entry['name']}` | {_cell(entry['about'])} |" for entry in entries]
        if len(rows) > 2:  # some packages have no parts
            tables.append(f"## [{package.name}]({package.folder})\n\n" + "\n".join(rows))
    return "\n\n".join(tables)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def offered(listed: list[Package]) -> str:
    """Return the table of `rlm_plugins/registry/packages.toml`: package → recipe key → names of its parts."""
    lines = ["# The parts of each package of this project, for errors about a missing one. Written by `make tables`."]
    for package in listed:
        if package.name == BUILT_IN[0] or not package.parts:
            continue
        lines.append(f"\n[{package.name}]")
        for key, entries in package.parts.items():
            lines.append(f"{key} = {json.dumps([entry['name'] for entry in entries])}")
    return "\n".join(lines) + "\n"


TABLES = {"overview": overview, "parts": parts}
"""Name between ``<!-- table: NAME -->`` and ``<!-- end -->`` → the function that makes the table."""


def updated(page: Path, listed: list[Package]) -> str:
    """Return the text of the page with its tables as the registry has them.

    Raises:
        SystemExit: A table does not have exactly one place on the page.
    """
    text = page.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        between = re.compile(rf"(<!-- table: {name} -->\n).*?(<!-- end -->)", re.S)
        content = f"\n{table(listed)}\n\n"
        text, count = between.subn(lambda match: match[1] + content + match[2], text)  # noqa: B023 (called at once)
        if count != 1:
            raise SystemExit(f"{page.name}: expected one `<!-- table: {name} -->` … `<!-- end -->`, got {count}")
    return text


if __name__ == "__main__":
    listed = packages()
    write_file(PAGE, updated(PAGE, listed))
    write_file(PACKAGES, offered(listed))
