"""Language of docstrings, messages, command-line help and Markdown pages: the rules of CONTRIBUTING."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pydantic
import pytest

from rlm_plugins.batch import MEANINGS
from rlm_plugins.recipe import sections

ROOT = Path(__file__).parents[1]
OPENING = re.compile(r"^(What|Whether|Who|Whose|Which|Where|Why|How|The same)\b")
PERSONS = re.compile(r"\b(nobody|somebody|everybody|whoever|someone|anyone)\b", re.IGNORECASE)
METAPHORS = re.compile(
    r"\b(desk|tutor|pupil|ledger|workshop|sieves?|sieving|teach(es)?|taught|lessons? of|thought of (it|each|them)"
    r"|bends?|bending|hurr(y|ies|ying)|passed over|rows? that teach"
    r"|short cuts?|let(s|ting)? go of|made up batch|read padded"
    r"|written by transformers)\b",
    re.IGNORECASE,
)
BRITISH = re.compile(
    r"\b(optimis(e|er|ers|ation|ing)|normalis\w+|regularis\w+|behaviour|colour|licence|catalogue|favour|honour"
    r"|analys(e|es|ed)|initialis\w+|generalis\w+)\b",
    re.IGNORECASE,
)
WORDS = 25
"""Words of a sentence, at most."""
LITERAL = re.compile(r"::\n\n(?:(?: +[^\n]*)?\n)+|>>>.*?(?=\n\n|\Z)|^==.*==$", re.DOTALL | re.MULTILINE)
"""Literal blocks, doctests and tables of a docstring."""
BLOCKS = re.compile(r"\n\s*\n|^\s*(?:[-*+]|\d+\.)\s|^[|#].*$|^ {4}\S.*$", re.MULTILINE)
"""Ends of a paragraph or list item of a page; tables, headings and indented code are left out."""
ALLOWED: dict[str, str] = {}
"""File → why it is exempt: at most ten."""

PYTHON = sorted(
    path
    for folder in ("rlm_plugins", "plugins", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if not {"tests", "build", ".venv"} & set(path.relative_to(ROOT).parts)
)
DATA = ("metrics.toml", "builtin/algorithms.toml", "builtin/conventions.toml")
MARKDOWN = [p for folder in ("", "docs/**/", "plugins/**/", "recipes/**/") for p in ROOT.glob(f"{folder}*.md")]
PAGES = [*sorted(MARKDOWN), *(ROOT / "rlm_plugins" / name for name in DATA)]
SPEAKING = ("Error", "Fault", "LawBroken", "warn", "warning", "info", "error", "echo", "Option", "Argument", "Typer")
"""Ends of the names of calls whose string arguments a user reads."""
MESSAGE = {"problem", "hint", "allowed", "reason", "message"}
"""Variables that hold parts of a message."""


def without_code(text: str) -> str:
    return re.sub(r"``?[^`]*``?", "", text)


def texts(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text and True for docstrings, of everything in a file that a reader gets to see."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if docstring := ast.get_docstring(node):
                yield getattr(node, "lineno", 1), without_code(docstring), True
        elif (isinstance(node, ast.Call) and ast.unparse(node.func).endswith(SPEAKING)) or (
            isinstance(node, ast.Assign) and MESSAGE & set(re.findall(r"\w+", " ".join(map(ast.unparse, node.targets))))
        ):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, without_code(part.value), False


def bad_words(text: str) -> str:
    return ", ".join(hit[0] for pattern in (PERSONS, METAPHORS, BRITISH) for hit in pattern.finditer(text))


def faults_of(path: Path) -> list[str]:
    faults = []
    for line, text, is_docstring in texts(path):
        where = f"{path.relative_to(ROOT)}:{line}: "
        if words := bad_words(text):
            faults.append(where + words)
        if is_docstring and OPENING.match(text.strip()):
            faults.append(f"{where}opens with '{text.split()[0]}'")
        sentences = re.split(r"(?<=[.:;])\s", LITERAL.sub(".\n", text))
        if is_docstring and any(len(s.split()) > WORDS for s in sentences if "=" not in s and "::" not in s):
            faults.append(f"{where}a sentence of more than {WORDS} words")
    return faults


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_file(path: Path) -> None:
    if str(path.relative_to(ROOT)) not in ALLOWED:
        assert faults_of(path) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_page(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    if path.name == "CHANGELOG.md":  # its table of renames lists the old names
        text = re.sub(r"^\|.*$", "", text, flags=re.MULTILINE)
    prose = re.sub(r"`[^`]*`|\]\([^)]*\)|<!--.*?-->", "", text)
    assert bad_words(prose) == ""
    blocks = BLOCKS.split(prose)
    sentences = [s for block in blocks for s in re.split(r"(?<=[.:;!?])\s", " ".join(block.split()))]
    assert [s for s in sentences if len(re.findall(r"\S*\w\S*", s)) > WORDS and path.suffix == ".md"] == []


def resolve(target: str, home: str) -> Any:
    """Return what a Sphinx role names: a dotted path of this project, or a name of its module."""
    parts = target.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            found = getattr(found, name)
        return found
    found = importlib.import_module(home)
    for name in parts:
        found = getattr(found, name)
    return found


ROLES = [
    (target, ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    for path in PYTHON
    if path.is_relative_to(ROOT / "rlm_plugins")
    for target in re.findall(r":(?:mod|func|class|data|attr|exc|meth):`~?([\w.]+)`", path.read_text())
]


@pytest.mark.parametrize(("target", "home"), sorted(set(ROLES)))
def test_sphinx_role_resolves(target: str, home: str) -> None:
    try:
        resolve(target, home)
    except AttributeError:  # a method of a class of that module
        module = importlib.import_module(home)
        assert any(hasattr(x, target) for x in vars(module).values() if isinstance(x, type)), f"{home}: {target}"


def test_every_batch_name_is_described() -> None:
    assert {name: text for name, text in MEANINGS.items() if not text or "\n" in text.strip()} == {}


def test_every_recipe_key_is_described() -> None:
    models = [x for x in vars(sections).values() if isinstance(x, type) and issubclass(x, pydantic.BaseModel)]
    missing = {f"{m.__name__}.{key}" for m in models for key, field in m.model_fields.items() if not field.description}
    assert missing == set()


def test_exemptions_are_few() -> None:
    assert len(ALLOWED) <= 10
