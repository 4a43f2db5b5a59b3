"""Pages and docstrings: cross-references resolve, and docs/reference, the site and the tables are up to date."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import build_site
import pytest
import reference
import site_lists
import site_pages
import tiny
from rlm_lab.convention_card import card
from transformers import Qwen3ForSequenceClassification

import rlm_plugins as rlm
from rlm_plugins.registry import Registry
from rlm_plugins.registry.registry import PACKAGES

ROOT = Path(__file__).parents[1]
SOURCES = [ROOT / "rlm_plugins", *sorted((ROOT / "plugins").glob("*/src")), ROOT / "benchmarks", ROOT / "tests"]
FILES = [file for source in SOURCES for file in sorted(source.rglob("*.py"))]
ROLE = re.compile(r":(?:class|func|meth|attr|mod|data|exc|obj):`~?([^`<]+?)(?: <([^`>]+)>)?`")
PATH = re.compile(r"(?<![\w/.])((?:[a-z_][\w.-]*/)+[\w-]+\.(?:py|md|yaml))\b")
DOTTED = re.compile(r"`(rlm_\w+(?:\.\w+)+)`")


def docstrings(file: Path) -> Iterator[str]:
    """Yield every docstring of a file, and every string that stands alone (the texts of constants)."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value


def module_of(file: Path) -> ModuleType | None:
    """Return the module of a file, or None for one that is not in a package (a test, a benchmark)."""
    source = next(source for source in SOURCES if file.is_relative_to(source))
    if source.name in ("tests", "benchmarks"):
        return None
    parts = file.relative_to(ROOT if source.name == "rlm_plugins" else source).with_suffix("").parts
    return importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))


def resolves(name: str, module: ModuleType | None) -> bool:
    """Return True if a dotted name is importable, or an attribute of the module that mentions it."""
    name = name.strip().removesuffix("()")
    if module is not None and (
        _has(module, name) or any(_has(x, name) for x in vars(module).values() if isinstance(x, type))
    ):
        return True
    return hasattr(builtins, name) or _importable(name)


@functools.cache
def _importable(name: str) -> bool:
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        return _has(found, ".".join(parts[length:]))
    return False


def _has(target: Any, name: str) -> bool:
    for part in filter(None, name.split(".")):
        fields = getattr(target, "__dataclass_fields__", {})
        if not hasattr(target, part) and part not in fields:
            return False
        target = getattr(target, part, None)
    return True


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.relative_to(ROOT)))
def test_roles_and_dotted_names_resolve(source: Path) -> None:
    dangling = []
    for file in (file for file in FILES if file.is_relative_to(source)):
        for text in docstrings(file):
            names = [target or title for title, target in ROLE.findall(text)]
            names += DOTTED.findall(text)
            if names:
                module = module_of(file)
                dangling += [f"{file.relative_to(ROOT)}: {name}" for name in names if not resolves(name, module)]
    assert dangling == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.relative_to(ROOT)))
def test_paths_in_docstrings_exist(source: Path) -> None:
    dangling = []
    for file in (file for file in FILES if file.is_relative_to(source)):
        package = next((parent for parent in file.parents if (parent / "pyproject.toml").exists()), ROOT)
        roots = (ROOT, ROOT / "rlm_plugins", file.parent, package)
        for path in (path for text in docstrings(file) for path in PATH.findall(text)):
            if not path.startswith("folder/") and not any((root / path).exists() for root in roots):
                dangling.append(f"{file.relative_to(ROOT)}: {path}")
    assert dangling == []


EXPERIMENT = {
    "model": {"name": "scratch", "hidden": 16, "heads": 2, "intermediate": 16},
    "environment": {"name": "addition", "digits": 2, "test_rows": 4},
    "rewards": ["accuracy"],
    "algorithm": "grpo",
    "trainer": {"max_steps": 1, "per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 3},
}


def test_the_pages_are_up_to_date() -> None:
    pages = reference.pages()
    folder = ROOT / "docs" / "reference"
    assert {file.name for file in folder.glob("*.md")} == set(pages)
    stale = [name for name, text in pages.items() if (folder / name).read_text() != text]
    assert stale == [], "run `make reference`"


def test_every_public_name_has_a_page_with_an_example() -> None:
    pages = reference.pages()
    for name in rlm.__all__:
        if name != "__version__":
            assert "## Example" in pages[f"{name}.md"], name
            assert name in pages["README.md"]


@pytest.mark.slow
@pytest.mark.parametrize("name", reference.examples())
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    config = tiny.model().config
    config.num_labels = 1
    plain = {"output_dir": str(tmp_path), "max_steps": 1, "use_cpu": True, "bf16": False, "report_to": "none"}
    known: dict[str, Any] = {
        "settings": tiny.settings(output_dir=str(tmp_path), max_steps=1),
        "plain": plain,
        "model": tiny.model(),
        "classifier": Qwen3ForSequenceClassification(config),
        "tokenizer": tiny.tokenizer(),
        "lora": tiny.lora(),
        "dataset": tiny.problems(),
        "experiment": EXPERIMENT,
        "folder": tmp_path,
    }
    exec(reference.examples()[name], known)


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


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


def test_every_algorithm_part_and_finding_has_a_page_with_what_it_is(registry: Registry) -> None:
    pages = build_site.generated_pages(registry)
    for part in [*site_pages.algorithms_of(registry), *site_pages.parts_of(registry)]:
        assert f"# {part.name}\n" in pages[site_pages.place(part)]
    for rule in site_lists.RULES:
        assert rule.described()["remedy"].split("`")[0] in pages[f"book/findings/{rule.name}.md"].replace("\\", "")
    assert "ℓ = −min(min(w, δ) Â, clip(w, 1−ε, 1+ε_high) Â)" in pages["book/parts/policy_loss/clip.md"]
    assert "torch.min(unclipped * advantages, clipped * advantages)" in pages["book/parts/policy_loss/clip.md"]


def test_numbers_of_other_libraries_are_those_of_the_card(registry: Registry) -> None:
    page = site_pages.algorithm_pages(registry)["book/algorithms/gspo.md"]
    part = registry.find("rlm_algorithms", "gspo", where="algorithm")
    for line in card(part, registry)["conventions"]:
        values = " | ".join(f"{line[key]:.4f}" for key in ("winner", "loss", "gradient"))
        assert f"| `{line['name']}` | {values} |" in page


def test_the_index_of_papers_names_what_implements_them(registry: Registry) -> None:
    page = site_lists.list_pages(registry)["book/papers.md"]
    (row,) = [line for line in page.splitlines() if "abs/2507.18071" in line]
    assert "book/algorithms/gspo.md" in row


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("../rlm_plugins/builtin", "/source/rlm_plugins/builtin.md"),
        ("../recipes/papers", "/recipes/papers/README.md"),
        ("reference.py", "/source/docs/reference.py.md"),
        ("python.md#another-algorithm", "python.md#another-algorithm"),
        ("https://example.org/y.py", "https://example.org/y.py"),
    ],
)
def test_links_to_folders_and_source_files_lead_to_pages(target: str, expected: str) -> None:
    in_code = f"```\n[b]({target})\n```"
    text = f"[a]({target})\n{in_code}"
    assert build_site.led_to_pages("docs/algorithms.md", text) == f"[a]({expected})\n{in_code}"


def test_a_broken_link_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build_site, "BUILD", tmp_path)
    monkeypatch.setattr(build_site, "stage", lambda pages: {"README.md": "# x\n\n[y](nope.md)"})
    with pytest.raises(SystemExit, match="1"):
        build_site.main()
    assert "link 'nope.md'" in capsys.readouterr().out


def test_the_site_is_built_and_fetches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_site, "BUILD", tmp_path)
    assert build_site.main() == 0
    pages = list((tmp_path / "html").rglob("*.html"))
    fetched = r"<(?:script|img|iframe)[^>]+src=\"https?:|<link[^>]+(?:stylesheet|preconnect)[^>]+https?:"
    assert len(pages) > 500
    assert [page for page in pages if re.search(fetched, page.read_text(encoding="utf-8"))] == []
