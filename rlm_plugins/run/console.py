"""The console of a run: names, completions and errors are printed as text, never as markup or control characters."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from rlm_plugins.messages import visible


class TextConsole(Console):
    """A console whose texts do not act on the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects; markup and highlighting are off by default."""
        texts = (visible(item) if isinstance(item, str) else item for item in objects)
        super().print(*texts, **{"markup": False, "highlight": False, "soft_wrap": True, **options})
