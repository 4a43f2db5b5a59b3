"""The page in the output of a notebook's cell."""

from __future__ import annotations

from html import escape
from pathlib import Path

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
