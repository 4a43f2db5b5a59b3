"""Fake installed packages, without pip, for tests that run their recipes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def register(site: Path, distribution: str, version: str, entry_points: Mapping[str, str]) -> None:
    """Write what pip leaves for `importlib.metadata`: name, version and entry points.

    Args:
        site: A folder on ``sys.path``; made where it is missing.
        distribution: Name of the package.
        version: Of the package.
        entry_points: Name of the plugin → its module, which can be imported from elsewhere.
    """
    info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    lines = [f"{name} = {value}" for name, value in entry_points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[rlm]", *lines, ""]))
