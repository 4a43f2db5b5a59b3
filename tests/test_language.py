"""Language of docstrings, messages, command-line help, tests and Markdown pages: the rules of CONTRIBUTING."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pydantic
import pytest

from rlm_plugins.equation.batch import MEANINGS
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
GIVEN_UP = re.compile(
    r"\b(rooms?|walls|guests?|quiet(ly)?|honest(ly)?|short cuts?|tiny world|knows?|wants?|hears?|thinks?"
    r"|forgets?|asks?|says?|told|turns (knobs?|a knob)|seen to|a row of|who (writes|moves|asks))\b",
    re.IGNORECASE,
)
"""Words that docstrings of tests used for the scoring phase, checks, plugins, calls and completions."""
IMPERATIVE = re.compile(
    r"^(Accept|Add|Answer|Apply|Block|Call|Change|Check|Clear|Compare|Compose|Compute|Convert|Copy|Count"
    r"|Create|Damage|Delete|Diagnose|Draw|End|Enter|Escape|Exclude|Exit|Fail|Fill|Find|Fork|Format|Fuse"
    r"|Generate|Give|Halve|Hide|Import|Inject|Insert|Install|Interpret|Interrupt|Join|Keep|Kill|Leave|List"
    r"|Load|Log|Make|Mark|Measure|Merge|Multiply|Observe|Open|Pad|Parametrize|Parse|Patch|Predict|Press"
    r"|Print|Raise|Read|Receive|Record|Redirect|Register|Remove|Replace|Require|Reset|Restore|Resume"
    r"|Return|Round|Run|Sample|Save|Scale|Score|Seal|Select|Send|Serve|Set|Simulate|Skip|Sleep|Sort|Split"
    r"|Start|Stop|Store|Switch|Test|Time|Trace|Train|Trust|Update|Use|Wait|Whiten|Wrap|Write|Yield)\b"
)
"""First words of the docstrings of helper functions, unless these are formulas."""
WORDS = 25
"""Words of a sentence, at most."""
LITERAL = re.compile(r"::\n\n(?:(?: +[^\n]*)?\n)+|>>>.*?(?=\n\n|\Z)|^==.*==$", re.DOTALL | re.MULTILINE)
"""Literal blocks, doctests and tables of a docstring."""
BLOCKS = re.compile(r"\n\s*\n|^\s*(?:[-*+]|\d+\.)\s|^[|#].*$|^ {4}\S.*$", re.MULTILINE)
"""Ends of a paragraph or list item of a page; tables, headings and indented code are left out."""

PYTHON = sorted(
    path
    for folder in ("rlm_plugins", "plugins", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
    if not {"tests", "build", ".venv"} & set(path.relative_to(ROOT).parts)
)
TESTS = sorted(
    path
    for pattern in ("tests/**/*.py", "plugins/*/tests/**/*.py", "benchmarks/**/*.py", "recipes/**/*.py")
    for path in ROOT.glob(pattern)
    if path.name != "test_language.py"
)
DATA = ("../plugins/rlm-lab/src/rlm_lab/metrics.toml", "builtin/algorithms.toml", "builtin/conventions.toml")
MARKDOWN = [p for folder in ("", "docs/**/", "plugins/**/", "recipes/**/") for p in ROOT.glob(f"{folder}*.md")]
PAGES = [*sorted(MARKDOWN), *(ROOT / "rlm_plugins" / name for name in DATA)]
SPEAKING = ("Error", "Fault", "LawBroken", "warn", "warning", "info", "error", "echo", "Option", "Argument", "Typer")
"""Ends of the names of calls whose string arguments a user reads."""
VAGUE = {"made", "said", "told", "asked", "found", "standing", "pieces", "passed", "mine", "taken", "both", "same"}
VAGUE |= {"alone", "what", "needed", "wanted", "thing"}
"""Names of variables of the core that would not say what they hold."""
MESSAGE = {"problem", "hint", "allowed", "reason", "message"}
"""Variables that hold parts of a message."""


DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def without_code(text: str) -> str:
    return re.sub(r"``?[^`]*``?", "", text)


def texts(path: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield line, text and True for docstrings, of everything in a file that a reader gets to see."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, DOCUMENTED):
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


def has_long_sentence(text: str) -> bool:
    sentences = re.split(r"(?<=[.:;])\s", LITERAL.sub(".\n", text))
    return any(len(s.split()) > WORDS for s in sentences if "=" not in s and "::" not in s)


def is_helper(node: ast.AST) -> bool:
    """Return True for functions except tests and properties."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("test_"):
        return False
    return not any("property" in ast.unparse(x) for x in node.decorator_list)


def is_imperative(text: str) -> bool:
    """Return True if the first word is an imperative, or the first paragraph has a formula."""
    return bool(IMPERATIVE.match(text)) or "=" in text.partition("\n\n")[0]


def faults_of(path: Path) -> list[str]:
    faults = []
    for line, text, is_docstring in texts(path):
        where = f"{path.relative_to(ROOT)}:{line}: "
        if words := bad_words(text):
            faults.append(where + words)
        if is_docstring and OPENING.match(text.strip()):
            faults.append(f"{where}opens with '{text.split()[0]}'")
        if is_docstring and has_long_sentence(text):
            faults.append(f"{where}a sentence of more than {WORDS} words")
    return faults


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_python_file(path: Path) -> None:
    assert faults_of(path) == []


def test_variables_of_the_core_say_what_they_hold() -> None:
    vague = []
    for path in sorted((ROOT / "rlm_plugins").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.arg if isinstance(node, ast.arg) else getattr(node, "id", "")
            if name in VAGUE:
                vague.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")  # type: ignore[attr-defined]
    assert vague == []


@pytest.mark.parametrize("path", TESTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_of_tests(path: Path) -> None:
    faults = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, DOCUMENTED) or not (docstring := ast.get_docstring(node)):
            continue
        where, text = f"line {getattr(node, 'lineno', 1)}: ", without_code(docstring)
        faults += [where + hit[0] for hit in GIVEN_UP.finditer(text)]
        if words := bad_words(text):
            faults.append(where + words)
        if OPENING.match(text):
            faults.append(f"{where}opens with '{text.split()[0]}'")
        if has_long_sentence(text):
            faults.append(f"{where}a sentence of more than {WORDS} words")
        if is_helper(node) and not is_imperative(text):
            faults.append(f"{where}does not begin with an imperative")
    assert faults == []


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


def test_every_batch_name_is_described() -> None:
    assert {name: text for name, text in MEANINGS.items() if not text or "\n" in text.strip()} == {}


def test_every_recipe_key_is_described() -> None:
    models = [x for x in vars(sections).values() if isinstance(x, type) and issubclass(x, pydantic.BaseModel)]
    missing = {f"{m.__name__}.{key}" for m in models for key, field in m.model_fields.items() if not field.description}
    assert missing == set()


def test_an_adapter_in_a_hint_has_its_alpha() -> None:
    """PEFT's default of 8 is a scale of 0.5 at the rank that is shown."""
    without = re.compile(r"lora[:=] ?\{+r: \d+(?!, lora_alpha)")
    assert [path.name for path in PYTHON if without.search(path.read_text())] == []
