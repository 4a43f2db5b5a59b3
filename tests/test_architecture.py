"""Structure of the core: packages import only packages below them, without cycles, and file names are unique."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import weight

import rlm_plugins

CORE = Path(rlm_plugins.__file__).parent
FLOORS = (  # bottom up; the packages of one floor may import each other, without a cycle of modules
    "__init__ errors lazy specs",
    "durable workers",
    "hookspecs equation registry stage",
    "data rewards rollout recipe",
    "models evaluation trainer",
    "report run",
    "builtin",
    "cli api __main__",
)
FLOOR = {package: number for number, floor in enumerate(FLOORS) for package in floor.split()}
SAME_SUBJECT = {"__init__", "critic", "environment", "rewards", "rollouts"}
"""File names that several packages have, for the same subject."""
UPWARD = {("rlm_plugins.registry.registry", "rlm_plugins.builtin"): "the registry registers the built-in plugin"}
"""Imports of a higher floor, with the reason: at most a handful."""
IMPORT = ast.Import | ast.ImportFrom


def module_of(path: Path) -> str:
    parts = ("rlm_plugins", *path.relative_to(CORE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(CORE.rglob("*.py"))}


def imports(path: Path) -> Iterator[str]:
    """Yield the modules of the core that a file imports, also within functions, except for type checkers."""
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += node.orelse
            continue
        nodes += ast.iter_child_nodes(node)
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [full if (full := f"{node.module}.{a.name}") in MODULES else node.module for a in node.names]
        yield from (name for name in names if name in MODULES and name != "rlm_plugins")


def package_of(module: str) -> str:
    return [*module.split("."), "__init__"][1]


def test_page_has_every_package_on_its_floor() -> None:
    """The table of docs/architecture.md, row by row, and the files."""
    assert FLOOR.keys() == {package_of(module) for module in MODULES}
    page = (CORE.parent / "docs" / "architecture.md").read_text()
    _, table = page.split("| packages and modules | subject |\n|---|---|\n")
    rows = [line.split("|")[1] for line in table.split("\n\n")[0].splitlines()]
    assert [re.findall(r"`(\w+)`", row) for row in rows] == [floor.split() for floor in FLOORS]


@pytest.mark.parametrize("package", sorted({package_of(module) for module in MODULES}))
def test_imports_of_lower_floors_only(package: str) -> None:
    assert package in FLOOR, f"add '{package}' to FLOORS"
    wrong = {
        f"{module} imports {other}"
        for module, path in MODULES.items()
        if package_of(module) == package
        for other in imports(path)
        if FLOOR[package_of(other)] > FLOOR[package] and (module, other) not in UPWARD
    }
    assert not wrong


def test_no_import_cycle() -> None:
    graph = {module: set(imports(path)) - {module} for module, path in MODULES.items()}
    while free := [module for module, needed in graph.items() if not needed & graph.keys()]:
        for module in free:
            del graph[module]
    tops = {module for module in graph if any(module in needed for needed in graph.values())}
    assert not tops, "modules in a cycle, or between two cycles"


def test_core_imports_no_plugin_package() -> None:
    """The command line is the exception: it may import a command of an installed package."""
    packages = {path.name for path in CORE.parent.glob("plugins/*/src/*") if (path / "__init__.py").is_file()}
    assert {"rlm_fast", "rlm_math"} <= packages
    trees = [ast.parse(path.read_text()) for module, path in MODULES.items() if package_of(module) != "cli"]
    statements = [ast.unparse(x) for tree in trees for x in ast.walk(tree) if isinstance(x, IMPORT)]
    assert not packages & {name for text in statements for name in re.findall(r"(?:from|import) (\w+)", text)}


def test_file_names_are_unique() -> None:
    counts = Counter(path.stem for path in MODULES.values())
    assert {name for name, count in counts.items() if count > 1} <= SAME_SUBJECT


def test_weight_is_within_its_limits(capsys: pytest.CaptureFixture[str]) -> None:
    assert weight.main() == 0, capsys.readouterr().out
