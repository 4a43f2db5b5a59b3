"""Checks of tensor shapes in the built-in parts while tests run; installed plugins are hidden."""

import gc
import importlib.metadata
import sysconfig
from pathlib import Path
from typing import Any

from hypothesis import settings
from jaxtyping import install_import_hook

install_import_hook("rlm_plugins.builtin", "beartype.beartype")
settings.register_profile("no deadline", deadline=None)  # no test depends on how fast a machine is
settings.load_profile("no deadline")

SITE = Path(sysconfig.get_path("purelib"))
_entry_points = importlib.metadata.entry_points


def _without_installed_plugins(**selection: Any) -> Any:
    """Return the entry points; of group ``rlm`` only those that a test registers."""
    points = _entry_points(**selection)
    if selection.get("group") != "rlm":
        return points
    return [point for point in points if point.dist is None or Path(str(point.dist.locate_file(""))) != SITE]


importlib.metadata.entry_points = _without_installed_plugins


def pytest_collection_finish() -> None:
    """Exclude imported modules and collected tests from garbage collection, which trainers run often (`gc.collect`)."""
    gc.collect()
    gc.freeze()
