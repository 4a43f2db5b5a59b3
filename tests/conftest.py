"""Shapes in the signatures of the built-in parts are checked while tests run; installed guests stay outside."""

import gc
import importlib.metadata
import sysconfig
from pathlib import Path
from typing import Any

from jaxtyping import install_import_hook

install_import_hook("rlm_plugins.builtin", "beartype.beartype")

SITE = Path(sysconfig.get_path("purelib"))
_entry_points = importlib.metadata.entry_points


def _without_installed_guests(**selection: Any) -> Any:
    """Entry points as ever, but of group ``rlm`` only those that a test brings along itself."""
    found = _entry_points(**selection)
    if selection.get("group") != "rlm":
        return found
    return [point for point in found if point.dist is None or Path(str(point.dist.locate_file(""))) != SITE]


importlib.metadata.entry_points = _without_installed_guests


def pytest_collection_finish() -> None:
    """What was imported and collected stays; else every training looks through all of it (`gc.collect`), at 0.4 s."""
    gc.collect()
    gc.freeze()
