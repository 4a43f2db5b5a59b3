"""Build the site: the Markdown files of the repository, and pages that are generated from the registry.

    python docs/build_site.py      # or: make site; then open build/site/html/index.html

The pages stand below ``build/site/pages`` at their places in the repository, so a link works here and in a checkout. A
link to a source file leads to a page with its text. mkdocs checks every link; a broken one fails the build.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from site_lists import list_pages, navigation
from site_pages import ROOT, algorithm_pages, part_pages, symbol_pages

from rlm_plugins.durable.files import whole
from rlm_plugins.registry import Registry

BUILD = ROOT / "build" / "site"
SETTINGS = ROOT / "docs" / "mkdocs.yml"
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.S | re.M)
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.py"))
LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".json": "json"}
COPIED = (".png", ".svg", ".css", ".js")
SHIM = "https://unpkg.com/iframe-worker/shim"
"""The script that mkdocs-material loads from another host; docs/file_worker.js takes its place."""


def main() -> int:
    """Write the pages, build the site and print what is wrong with it; return 1 if anything is."""
    registry = Registry()
    shutil.rmtree(BUILD, ignore_errors=True)
    for path, text in stage(generated_pages(registry)).items():
        write(path, text)
    for path in tracked(*COPIED):
        target = BUILD / "pages" / (path.name if path.suffix in (".css", ".js") else path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, target)
    for path in NOTEBOOKS:
        write(f"source/{path.relative_to(ROOT).with_suffix('.ipynb')}", notebook(path.read_text(encoding="utf-8")))
        shutil.copy(path, BUILD / "pages" / "source" / path.relative_to(ROOT))
    with whole(BUILD / "html") as html:  # a build that is stopped leaves none
        if problem := built(html, navigation(registry)):
            print(problem)
            raise SystemExit(1)  # inside the block, which then removes what was written
    print(f"{BUILD / 'html' / 'index.html'}: {len(list((BUILD / 'html').rglob('*.html')))} pages, every link checked")
    return 0


def built(html: Path, places: str) -> str:
    """Build the site into a folder; return what mkdocs prints if it fails."""
    settings = BUILD / "mkdocs.yml"
    places = f"docs_dir: {BUILD / 'pages'}\nsite_dir: {html}\n{places}"
    settings.write_text(SETTINGS.read_text(encoding="utf-8") + places, encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(settings)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    for page in html.rglob("*.html") if not done.returncode else ():
        shim = os.path.relpath(html / "file_worker.js", page.parent)
        page.write_text(page.read_text(encoding="utf-8").replace(SHIM, shim), encoding="utf-8")
    return done.stdout + done.stderr if done.returncode else ""


def write(path: str, text: str) -> None:
    """Write a page."""
    target = BUILD / "pages" / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def generated_pages(registry: Registry) -> dict[str, str]:
    """Return path → text of every page that the registry writes."""
    return {**algorithm_pages(registry), **symbol_pages(registry), **part_pages(registry), **list_pages(registry)}


def stage(generated: dict[str, str]) -> dict[str, str]:
    """Return path → text of every page, with links to source files led to pages of their own."""
    written = {str(path): (ROOT / path).read_text(encoding="utf-8") for path in tracked(".md")}
    pages = {path: led_to_pages(path, text) for path, text in (generated | written).items()}
    linked = {link for path, text in pages.items() for link in source_links(text)}
    return pages | {f"source/{path}.md": source_page(path) for path in sorted(linked)}


def tracked(*suffixes: str) -> Iterator[Path]:
    """Yield the files of the repository with one of these suffixes, relative to it."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    yield from (Path(line) for line in listed.stdout.splitlines() if line.endswith(suffixes) and (ROOT / line).exists())


def led_to_pages(page: str, text: str) -> str:
    """Return the text of a page whose links to folders and source files lead to pages of the site."""

    def replaced(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if "://" in target or target.startswith(("/", "mailto:")):
            return match[0]
        path = os.path.normpath(Path(page).parent / target)
        place = ROOT / path
        if place.is_dir():
            readme = place / "README.md"
            return f"{before}/{path}/README.md{after}" if readme.exists() else f"{before}/source/{path}.md)"
        is_page = target.endswith((".md", *COPIED)) or not place.is_file()
        return match[0] if is_page else f"{before}/source/{path}.md)"

    return outside_fences(text, lambda part: LINK.sub(replaced, part))


def outside_fences(text: str, change: Callable[[str], str]) -> str:
    """Return a text with `change` applied outside blocks of code."""
    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def source_links(text: str) -> set[str]:
    """Return the paths of the source files and folders to which a page links."""
    return set(re.findall(r"\]\(/source/([^)#]+)\.md\)", text))


def source_page(path: str) -> str:
    """Return the page of a source file, or of a folder."""
    place = ROOT / path
    if place.is_dir():
        names = sorted(f"{path}/{entry.name}" for entry in place.iterdir() if entry.suffix in (*LANGUAGES, ".md"))
        return "\n".join([f"# {path}", "", "A folder of the repository:", "", *(f"- `{name}`" for name in names), ""])
    text = place.read_text(encoding="utf-8", errors="replace")
    files = f"Download it [for Jupyter]({place.stem}.ipynb), or [as text]({place.name}).\n\n"
    head = files if place in NOTEBOOKS else ""
    return f"# {path}\n\n{head}````{LANGUAGES.get(place.suffix, 'text')}\n{text}\n````\n"


def notebook(text: str) -> str:
    """Return a notebook that is written as text, in cells that begin with ``# %%``, as a file for Jupyter."""
    cells = []
    for cell in text.split("# %%")[1:]:
        kind, _, body = cell.partition("\n")
        is_text = "[markdown]" in kind
        lines = [re.sub(r"^# ?", "", line) if is_text else line for line in body.strip("\n").splitlines(keepends=True)]
        entry = {
            "cell_type": "markdown" if is_text else "code",
            "id": f"cell-{len(cells)}",
            "metadata": {},
            "source": lines,
        }
        cells.append(entry if is_text else {**entry, "execution_count": None, "outputs": []})
    return json.dumps(
        {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1, ensure_ascii=False
    )


if __name__ == "__main__":
    sys.exit(main())
