"""Hides installed plugins except those of the machine: the tests describe the built-in parts."""

import importlib.metadata
import sys
import sysconfig
from pathlib import Path
from typing import Any

SITE = Path(sysconfig.get_path("purelib"))
_entry_points = importlib.metadata.entry_points


def _of_the_core(**selection: Any) -> Any:
    """Return the entry points; of group ``rlm`` only those of this package and those that a test registers."""
    points = _entry_points(**selection)
    if selection.get("group") != "rlm":
        return points
    hidden = {point for point in points if point.dist and Path(str(point.dist.locate_file(""))) == SITE}
    return [point for point in points if point.name in ("async", "fast", "lab") or point not in hidden]


importlib.metadata.entry_points = _of_the_core
sys.path.insert(0, str(Path(__file__).parent))
