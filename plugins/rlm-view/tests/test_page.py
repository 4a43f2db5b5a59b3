"""The page of a run as a file: its content, and no markup except its own."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from logs_of_a_run import run_folder
from rlm_view.page import page_of, run_data, view
from typer.testing import CliRunner

from rlm_plugins.cli import app

HOSTILE = [
    "</script><script>window.pwned=1</script>",
    "<!--<script>",
    "<img src=x onerror=window.pwned=1>",
    "]]>",
    "\u202egnp.exe\u2066\u200f",
    "\x00\x07\x1b[2J\x7f\ud800",
    "\u2028\u2029&lt;b&gt;`${alert(1)}`",
    "@@SCRIPT@@ @@DATA@@",
]


class Elements(HTMLParser):
    """Parser that collects elements with their attributes, and the text of the data."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.data = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][1].get("id") == "data":
            self.data += data


def parsed(text: str) -> Elements:
    elements = Elements()
    elements.feed(text)
    return elements


def test_page_of_a_run_without_capsules(tmp_path: Path) -> None:
    warnings: list[str] = []
    page = view([run_folder(tmp_path / "old", ["1+1=?"])], None, warnings.append)
    assert page == tmp_path / "old" / "view.html"
    data = json.loads(parsed(page.read_text()).data)
    (run,) = data["runs"]
    assert run["capsules"] == []
    assert run["summary"] is None
    assert run["stages"][0]["curves"]["reward"] == [[i, i / 4, None, None] for i in (1, 2, 3)]
    assert run["stages"][0]["curves"]["held_out/accuracy"] == [[3, 0.5, 0.4, 0.6]]
    assert (run["samples"][0]["prompt"], run["samples"][0]["columns"]) == ("1+1=?", {})
    assert run["given"] == []


def test_settings_of_the_recipe_and_columns_of_the_samples(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "new", [])
    (folder / "manifest.json").write_text('{"given": ["", "trainer.max_steps", "evaluation.metric", "algorithm"]}')
    (folder / "samples.jsonl").write_text('{"prompt": "1+1=?", "columns": {"answer": "2", "unit": "<b>m</b>"}}\n')
    data = run_data(folder, print)
    assert data["given"] == ["algorithm.name", "evaluation.metric", "trainer.max_steps"]
    assert data["samples"][0]["columns"] == {"answer": "2", "unit": "<b>m</b>"}


def test_page_loads_nothing(tmp_path: Path) -> None:
    page = view([run_folder(tmp_path / "old", [])], None, print).read_text()
    assert re.findall(r"""(?:src|href|action)\s*=\s*["']?(?!#)[^"'\s>]+""", page) == []
    assert "default-src 'none'" in page
    assert not re.search(r"\b(fetch|XMLHttpRequest|import|WebSocket|innerHTML|eval|outerHTML|insertAdjacent)\b", page)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_completions_are_data(text: str, tmp_path: Path) -> None:
    plain = parsed(view([run_folder(tmp_path / "a", [""])], tmp_path / "a.html", print).read_text())
    hostile = parsed(view([run_folder(tmp_path / "b", [text])], tmp_path / "b.html", print).read_text())
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in plain.found]
    (run,) = json.loads(hostile.data)["runs"]
    assert run["samples"][0]["completion"] == text
    assert (tmp_path / "b.html").read_bytes().decode("ascii", errors="ignore").count("</script>") == 2


def test_hostile_name_of_a_run() -> None:
    name = "</title><script>window.pwned=1</script>"
    page = page_of({"runs": [{"name": name}]})
    assert [tag for tag, _ in parsed(page).found].count("script") == 2
    assert json.loads(parsed(page).data)["runs"][0]["name"] == name


@pytest.mark.parametrize(
    ("names", "problem"),
    [(["nothing"], "expected the folder of a run"), (["a", "a", "a"], "expected one or two runs, got 3")],
)
def test_wrong_runs_are_errors(names: list[str], problem: str, tmp_path: Path) -> None:
    run_folder(tmp_path / "a", [])
    result = CliRunner().invoke(app, ["view", *(str(tmp_path / name) for name in names)])
    assert result.exit_code == 2
    assert problem in result.stderr
    assert "Traceback" not in result.output
