"""What :mod:`rlm_plugins.cli.plugins` knows, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rlm_plugins.cli.explain_report import folded
from rlm_plugins.cli.text_layout import columns
from rlm_plugins.hookspecs import HOOKS

Entry = dict[str, Any]


def render(plugins: Sequence[Entry]) -> str:
    """All plugins, their parts by hook; a broken one with the traceback of what broke it."""
    return "\n\n".join(_plugin(plugin) for plugin in plugins)


def _plugin(plugin: Entry) -> str:
    lines = [f"{plugin['name']}  ({plugin['origin']})"]
    if plugin["error"]:
        lines += [f"  NOT LOADED: {plugin['error']}", *(f"    {line}" for line in plugin["traceback"].splitlines())]
    parts = {key: ((part["name"], part["about"]) for part in found) for key, found in plugin["parts"].items()}
    rows = [(key, *part) for key in _in_order(parts) for part in folded(parts[key])]
    shown = [("" if i and rows[i - 1][0] == key else key, name, text) for i, (key, name, text) in enumerate(rows)]
    return "\n".join([*lines, columns(shown)]).rstrip()


def _in_order(keys: Iterable[str]) -> list[str]:
    order = [hook.key for hook in HOOKS.values()]
    return sorted(keys, key=order.index)
