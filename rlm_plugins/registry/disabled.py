"""Plugins that a user has disabled: their names, in a file of the user's configuration folder."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path


def disabled_file() -> Path:
    """Return ``rlm-plugins/disabled.json`` in the configuration folder."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "rlm-plugins" / "disabled.json"


def disabled() -> frozenset[str]:
    """Return the names; none if the file is missing or damaged."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):
        names = json.loads(disabled_file().read_text(encoding="utf-8"))
        return frozenset(name for name in names if isinstance(name, str))
    return frozenset()


def set_disabled(name: str, *, disable: bool) -> None:
    """Add a name, or remove it."""
    names = disabled() | {name} if disable else disabled() - {name}
    file = disabled_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(sorted(names)) + "\n", encoding="utf-8")
