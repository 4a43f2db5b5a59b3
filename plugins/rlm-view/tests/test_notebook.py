"""The page in a notebook that Jupyter executes."""

from __future__ import annotations

from pathlib import Path

import pytest
from headless_browser import HeadlessBrowser, browser_path
from logs_of_a_run import run_folder

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


@pytest.mark.full
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
