"""The page of a run, in a notebook too, and its essentials in the terminal: no markup except their own."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from headless_browser import HeadlessBrowser, browser_path
from logs_of_a_run import run_folder
from rlm_view.follow import GrowingLog, follow, has_ended
from rlm_view.page import page_of, run_data, view

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


def test_torn_lines_are_read_once_they_are_complete(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path / "log")
    assert log.new_records() == []
    line = json.dumps({"step": 1, "text": "→"}).encode() + b"\n"
    for cut in range(1, len(line)):
        (tmp_path / "log").write_bytes(line[:cut])
        assert log.new_records() == []
    (tmp_path / "log").write_bytes(line + b'{"step": 2}\n\xff\xfe broken\n[1]\n{"st')
    assert [record["step"] for record in log.new_records()] == [1, 2]
    with (tmp_path / "log").open("ab") as file:
        file.write(b'ep": 3}\n')
    assert [record["step"] for record in log.new_records()] == [3]


def test_steps_are_printed_until_the_run_ends(tmp_path: Path) -> None:
    run, lines = run_folder(tmp_path / "run", ["1+1=?\x1b[2J"]), []  # type: ignore[var-annotated]

    def more(_: float) -> None:
        with (run / "metrics.jsonl").open("a") as file:
            file.write('po", "step": 4, "reward": 1.0}\n')
        (run / "summary.json").write_text("{}")
        assert len(lines) < 99

    (run / "lock").write_text("{}")
    follow(run, 100, lines.append, pause=more)
    steps = [line for line in lines if line.startswith("step")]
    assert [line.split()[1] for line in steps] == ["1", "2", "3", "3", "4"]
    assert steps[-1].endswith("▁▃▆█")
    assert any(line.startswith("  last  1+1=?\\u001b[2J") for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_finding_is_printed_once(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", [])
    cut = {"completions/clipped_ratio": 1.0, "reward": 0.0, "grad_norm": 0.1}
    lines = [json.dumps({"stage": "01-grpo", "step": i, **cut}) for i in range(1, 9)]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    printed, looks = [], [0]  # type: ignore[var-annotated]

    def over(_: Path) -> bool:
        looks[0] += 1
        return looks[0] > 3

    follow(run, 200, printed.append, is_over=over, pause=lambda _: None)
    assert sum("truncated_completions" in line for line in printed) == 1


def test_end_of_a_run(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run", [])
    assert has_ended(run), "logs, and no process holds the lock"
    (run / "lock").write_text(json.dumps({"host": "elsewhere", "pid": 1, "started": None}))
    assert not has_ended(run)
    (run / "lock").write_text('{"host": ')
    assert not has_ended(run), "the lock is being written"
    (run / "summary.json").write_text("{}")
    assert has_ended(run)


CELLS = ["import rlm_plugins as rlm\nrun = rlm.Run('run')", "run.view()"]
PAGE = "<!doctype html><meta charset=utf-8><body data-ready=1>{}</body>"


def test_the_frame_holds_the_page_as_text(tmp_path: Path) -> None:
    from rlm_plugins import Run

    shown = Run(run_folder(tmp_path / "run", ['"></iframe><script>window.pwned=1</script>'])).view()
    html = shown._repr_html_()
    assert html.count("<iframe") == html.count("</iframe>") == 1
    assert "<script" not in html
    assert 'sandbox="allow-scripts"' in html
    assert repr(shown) == f"DisplayedPage('{tmp_path / 'run' / 'view.html'}')"


@pytest.mark.skipif(browser_path() is None, reason="no Chromium is installed (apt-get install chromium)")
def test_an_executed_notebook_shows_the_page(tmp_path: Path) -> None:
    client = pytest.importorskip("nbclient", reason="nbclient and ipykernel are not installed")
    nbformat = pytest.importorskip("nbformat")
    run_folder(tmp_path / "run", ["1+1=?"])
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    client.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    output = notebook.cells[-1].outputs[-1]  # before it, a line about the damaged log
    (tmp_path / "notebook.html").write_text(PAGE.format(output.data["text/html"]))
    path = browser_path()
    assert path is not None
    with HeadlessBrowser(path) as browser:
        browser.open(tmp_path / "notebook.html")
        assert browser.in_frame("document.body.dataset.ready") == "Curves"
        assert browser.in_frame("document.querySelectorAll('svg').length") >= 2
        assert browser.in_frame("document.querySelector('h1').textContent") == "run"
        assert browser.problems() == []
