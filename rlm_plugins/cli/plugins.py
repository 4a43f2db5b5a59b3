"""``rlm plugins``: the installed plugins, their parts, and the error of each broken one."""

from __future__ import annotations

from typing import Any

from rlm_plugins.cli.explain_parts import about
from rlm_plugins.cli.tracebacks import third_party_traceback
from rlm_plugins.hooks import HOOKS
from rlm_plugins.registry import Registry
from rlm_plugins.registry.loading import required_version

Entry = dict[str, Any]


def plugins(registry: Registry) -> list[Entry]:
    """Return an entry for every plugin.

    Args:
        registry: Supplies the plugins.

    Returns:
        ``name``, ``origin``, ``error`` (null if it was loaded), ``warning`` (another version of this package is
        required), ``traceback``, and ``parts``: recipe key → list of
        ``name``, ``full_name`` and ``about`` (one line).
    """
    registry.load_all()
    return [
        {
            "name": plugin.name,
            "origin": plugin.origin,
            "error": None if plugin.error is None else f"{type(plugin.error).__name__}: {plugin.error}",
            "warning": required_version(plugin.origin),
            "traceback": "" if plugin.error is None else third_party_traceback(plugin.error),
            "parts": _parts(plugin.name, registry),
        }
        for plugin in registry.plugins.values()
    ]


def _parts(plugin: str, registry: Registry) -> dict[str, list[Entry]]:
    by_key: dict[str, list[Entry]] = {}
    for part in registry:
        if part.plugin == plugin:
            entry = {"name": part.name, "full_name": part.full_name, "about": about(part)}
            by_key.setdefault(HOOKS[part.hook].key, []).append(entry)
    return by_key
