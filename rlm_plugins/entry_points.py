"""Entry points of installed distributions; those with a damaged ``entry_points.txt`` are recorded and have none."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import Distribution, EntryPoints

DAMAGED: dict[str, str] = {}
"""Distribution and version → the problem of its ``entry_points.txt``; filled as distributions are read."""


def origin_of(distribution: Distribution | None) -> str:
    """Return name and version of a distribution; its path if its metadata cannot be read, empty if there is none."""
    if distribution is None:
        return ""
    try:
        return f"{distribution.name} {distribution.version}"
    except Exception:
        return str(getattr(distribution, "_path", distribution))


def tolerate_damage() -> None:
    """Patch importlib.metadata in this process: a distribution with a damaged ``entry_points.txt`` has no entry points.

    Otherwise it raises for all distributions as soon as one is damaged, and pydantic, torch and fsspec read all.
    """
    original = Distribution.entry_points
    if not isinstance(original, property) or original.fget is _entry_points:
        return
    global _read
    _read = original
    Distribution.entry_points = property(_entry_points)  # type: ignore[assignment, method-assign]


def _entry_points(distribution: Distribution) -> EntryPoints:
    try:
        assert _read.fget is not None
        points: EntryPoints = _read.fget(distribution)
    except Exception as error:
        origin = origin_of(distribution)
        DAMAGED[origin] = f"entry_points.txt of {origin} cannot be read: {type(error).__name__}: {error}"
        return EntryPoints(())
    return points


_read: property = importlib.metadata.Distribution.entry_points  # type: ignore[assignment]
