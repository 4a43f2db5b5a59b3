"""The command ``rlm view`` of the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from rlm_plugins.errors import RlmError
from rlm_view.page import write_page

HEIGHT = 800


class DisplayedPage:
    """A page that a notebook displays; the notebook stores a copy of it.

    Args:
        file: The page.
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    def __repr__(self) -> str:
        return f"DisplayedPage('{self.file}')"

    def _repr_html_(self) -> str:
        """Return a frame with the page, whose script cannot reach the notebook (`sandbox`)."""
        page = escape(self.file.read_text(encoding="utf-8"), quote=True)
        style = f"width: 100%; height: {HEIGHT}px; border: 0"
        return f'<iframe title="rlm view" sandbox="allow-scripts" style="{style}" srcdoc="{page}"></iframe>'


MOST_RUNS = 2


def view(runs: Sequence[Path], out: Path | None, log_line: Callable[[str], None]) -> Path:
    """Write the page of one or two runs.

    Args:
        runs: Their folders.
        out: The HTML file; None: ``view.html`` in the folder of the first.
        log_line: Called with one line about each damage, and about what is left out.

    Raises:
        RlmError: A folder is not that of a run, there are more than two, or the file cannot be written.
    """
    if len(runs) > MOST_RUNS:
        hint = "`rlm compare` compares any number of runs"
        raise RlmError(f"expected one or two runs, got {len(runs)}", where="rlm view", hint=hint)
    target = runs[0] / "view.html" if out is None else out
    return write_page(runs, target, log_line)


def displayed(run: Path) -> DisplayedPage:
    """Write the page of a run, and return it for a notebook.

    Raises:
        RlmError: The folder is not that of a run, or the file cannot be written.
    """
    return DisplayedPage(view([run], None, print))
