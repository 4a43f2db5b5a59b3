"""Packages: those that `rlm new` generates pass their tests, and those under `plugins/` register and are valid."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from fake_plugins import register
from rlm_lab.scaffold import KINDS, create

from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe import document as recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry

ROOT = Path(__file__).parents[1]
Folders = Mapping[str, Path]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Create a package ``my_KIND`` of each kind, and return kind → folder."""
    folder = tmp_path_factory.mktemp("new")
    for kind in KINDS:
        create(kind, f"my_{kind}", folder)
    return {kind: folder / f"rlm-my-{kind.replace('_', '-')}" for kind in KINDS}


@pytest.fixture(scope="module")
def installed(packages: Folders) -> Iterator[Folders]:
    """Install them as pip would: by the metadata of their own pyproject.toml."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for package in packages.values():
            project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
            register(package / "src", project["name"], project["version"], project["entry-points"]["rlm"])
            monkeypatch.syspath_prepend(str(package / "src"))
            sys.modules.pop(package.name.replace("-", "_"), None)  # one in an earlier folder
        yield packages


def run(*command: str, cwd: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run([sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def verdicts(packages: Folders, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[bool]]:
    """Run the generated tests of all packages in one process, and return kind → passed."""
    report = tmp_path_factory.mktemp("report") / "report.xml"
    path = os.pathsep.join(str(package / "src") for package in packages.values())
    folder = next(iter(packages.values())).parent
    run("-m", "pytest", "-q", "--import-mode=importlib", f"--junitxml={report}", ".", cwd=folder, path=path)
    found: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    for case in ET.parse(report).iter("testcase"):
        kind = case.attrib["name"].partition("[")[0].removeprefix("test_my_")
        found[kind].append(len(case) == 0)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_tests_of_a_new_package_pass(verdicts: Mapping[str, list[bool]], kind: str) -> None:
    assert verdicts[kind], "the battery is not empty"
    assert all(verdicts[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_part_of_a_new_package_is_found_by_entry_point(installed: Folders, kind: str) -> None:
    registry = Registry()
    assert not registry.broken()
    part = registry.find(KINDS[kind], f"my_{kind}")
    assert part.full_name == f"my_{kind}/my_{kind}"
    assert registry.plugins[part.plugin].origin == f"rlm-my-{kind.replace('_', '-')} 0.1.0"
    assert Path(part.file).is_relative_to(installed[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_recipe_of_a_new_package_passes_every_check(installed: Folders, kind: str) -> None:
    registry = Registry()
    (stage,) = compose(recipe.load(installed[kind] / "recipe.yaml"), registry)
    assert f"my_{kind}" in str(stage.body)


@pytest.mark.parametrize("kind", KINDS)
def test_new_package_has_the_expected_files(packages: Folders, kind: str) -> None:
    written = [path for path in packages[kind].rglob("*") if path.suffix in (".py", ".md", ".toml", ".yaml")]
    assert len(written) == 5
    for path in written:
        text = path.read_text(encoding="utf-8")
        assert f"my_{kind}" in text or path.name == "README.md"
        assert "$" not in text, "a word of the skeleton was left"
        assert text.endswith("\n")
    readme = (packages[kind] / "README.md").read_text(encoding="utf-8")
    assert f"my_{kind}" in readme
    assert HOOKS[KINDS[kind]].key in readme


def test_the_generated_code_is_clean(packages: Folders) -> None:
    folder = next(iter(packages.values())).parent
    rules = ["--isolated", "--select=E,F,W,B,UP,RET,SIM", "--line-length=120", "--no-cache"]
    result = run("-m", "ruff", "check", *rules, ".", cwd=folder)
    assert result.returncode == 0, result.stdout


@pytest.mark.slow
def test_a_package_alone_runs_its_tests_without_being_installed(tmp_path: Path) -> None:
    create("advantage", "sober", tmp_path)
    result = run("-m", "pytest", "-q", cwd=tmp_path / "rlm-sober")
    assert result.returncode == 0, result.stdout
    assert "passed" in result.stdout


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("My-Reward", "'My-Reward' is not a valid name"),
        ("my reward", "hint: my_reward?"),
        ("../evil", "is not a valid name"),
        ("class", "'class' is not a valid name: a keyword of Python"),
        ("max", "a name that the example itself uses"),
        ("accuracy", "'accuracy' is the reserved name of a built-in part"),
        ("builtin", "the plugin 'builtin' is installed already: rlm-plugins"),
    ],
)
def test_invalid_name_is_an_error(tmp_path: Path, name: str, expected: str) -> None:
    with pytest.raises(RlmError) as caught:
        create("reward", name, tmp_path)
    assert expected in str(caught.value)
    assert not list(tmp_path.iterdir()), "nothing is written"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    create("reward", "mine", tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(RlmError, match=r"rlm-mine exists already"):
        create("advantage", "mine", tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_example_plugin_has_the_form_of_a_new_package(tmp_path: Path) -> None:
    def form(package: Path, module: str) -> set[str]:
        paths = [
            path.relative_to(package) for path in package.rglob("*") if path.suffix in (".py", ".md", ".toml", ".yaml")
        ]
        return {str(path).replace(module, "MODULE") for path in paths if path.parts[0][0] != "."}

    create("reward", "brevity", tmp_path)
    assert form(ROOT / "plugins" / "rlm-example", "rlm_example") == form(tmp_path / "rlm-brevity", "rlm_brevity")


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
    written = sorted(path for path in package.glob("**/*.yaml") if path.parent.name != "accelerate_configs")
    recipes = [path for path in written if not any(x in path.read_text() for x in absent)]
    assert recipes or not written
    for path in recipes:
        assert compose(recipe.load(path), Registry())
