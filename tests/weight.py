"""Print the weight of the code beside its limits: ``python tests/weight.py``; exit 1 beyond one.

Lower a limit when a change deletes lines. A change that raises one gives the reason in its commit.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "rlm_plugins"
LIMITS = {
    "lines of the core": 25_800,
    "files of the core": 142,
    "packages and modules directly under the core": 22,
    "imports among the core's lines of code, in percent": 10.9,
    "lines of core and packages": 67_900,
    "lines of tests": 45_930,
    "modules behind `from rlm_plugins import GRPOTrainer`": 60,
    "lines of the core behind it": 11_070,
    "packages": 18,
}
DOOR = """
import sys
from rlm_plugins import GRPOTrainer
print(*(module.__file__ for name, module in sys.modules.items() if name.startswith("rlm_") and module.__file__))
"""
BLANK = (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER, tokenize.COMMENT)


def lines(files: Iterator[Path]) -> int:
    """Return the number of lines of Python files."""
    return sum(file.read_text(encoding="utf-8").count("\n") for file in files)


def code_and_imports(file: Path) -> tuple[int, int]:
    """Return the lines of code, without blank lines, comments and docstrings, and those of import statements."""
    source = file.read_text(encoding="utf-8")
    code, imports = set(), set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in BLANK:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(code), len(imports)


def weights() -> dict[str, float]:
    """Return the figures that have a limit."""
    core = sorted(CORE.rglob("*.py"))
    counts = [code_and_imports(file) for file in core]
    tests = [ROOT / "tests", *ROOT.glob("plugins/*/tests")]
    door = subprocess.run([sys.executable, "-c", DOOR], cwd=ROOT, capture_output=True, text=True, check=True)
    behind = [Path(name) for name in door.stdout.split()]
    figures = [
        lines(iter(core)),
        len(core),
        len({file.relative_to(CORE).parts[0] for file in core} - {"__init__.py"}),
        round(100 * sum(count for _, count in counts) / sum(count for count, _ in counts), 1),
        lines(iter(core)) + lines(ROOT.glob("plugins/*/src/**/*.py")),
        sum(lines(folder.rglob("*.py")) for folder in tests),
        len(behind),
        lines(file for file in behind if CORE in file.parents),
        len(list(ROOT.glob("plugins/*/pyproject.toml"))),
    ]
    return dict(zip(LIMITS, figures, strict=True))


def main() -> int:
    """Print the table; return 1 if a figure is beyond its limit."""
    found = weights()
    for name, limit in LIMITS.items():
        print(f"{name:<55}{found[name]:>9}   limit {limit}{'   BEYOND' if found[name] > limit else ''}")
    return int(any(found[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
