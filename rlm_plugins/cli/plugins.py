"""``rlm plugins``: who is installed, what they offer, who is broken and why."""

from __future__ import annotations

from typing import Any

from rlm_plugins.cli.explain_parts import about
from rlm_plugins.cli.tracebacks import foreign
from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.registry import Registry

Entry = dict[str, Any]


def plugins(registry: Registry) -> list[Entry]:
    """Every plugin: ``name``, ``origin``, ``error`` (null when it is sound), ``traceback``, ``parts`` (key → list).

    A part is ``name``, ``full_name`` and ``about``, one line.
    """
    return [
        {
            "name": plugin.name,
            "origin": plugin.origin,
            "error": None if plugin.error is None else f"{type(plugin.error).__name__}: {plugin.error}",
            "traceback": "" if plugin.error is None else foreign(plugin.error),
            "parts": _parts(plugin.name, registry),
        }
        for plugin in registry.plugins.values()
    ]


def _parts(plugin: str, registry: Registry) -> dict[str, list[Entry]]:
    found: dict[str, list[Entry]] = {}
    for part in (part for part in registry if part.plugin == plugin):
        entry = {"name": part.name, "full_name": part.full_name, "about": about(part)}
        found.setdefault(HOOKS[part.hook].key, []).append(entry)
    return found
