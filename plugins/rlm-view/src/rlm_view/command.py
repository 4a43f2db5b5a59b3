"""The command ``rlm view`` of the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rlm_plugins.errors import RlmError
from rlm_view.follow import follow
from rlm_view.notebook import DisplayedPage
from rlm_view.page import write_page

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


def view_live(runs: Sequence[Path], width: int, log_line: Callable[[str], None]) -> None:
    """Print the essentials of a run while it goes on, and return at its end.

    Raises:
        RlmError: There are several runs, or the folder is not that of a run.
    """
    if len(runs) != 1:
        raise RlmError(f"expected one run, got {len(runs)}", where="rlm view --follow")
    follow(runs[0], width, log_line)
