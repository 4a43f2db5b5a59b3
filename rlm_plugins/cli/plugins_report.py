"""The entries of :mod:`rlm_plugins.cli.plugins` as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlm_plugins.cli.explain_report import folded
from rlm_plugins.cli.text_layout import columns
from rlm_plugins.hooks import HOOKS

Entry = dict[str, Any]


def render(plugins: Sequence[Entry]) -> str:
    """Return all plugins with their parts by recipe key, a broken one with its traceback."""
    return "\n\n".join(_plugin(plugin) for plugin in plugins)


def _plugin(plugin: Entry) -> str:
    lines = [f"{plugin['name']}  ({plugin['origin']})"]
    if plugin["error"]:
        lines += [f"  NOT LOADED: {plugin['error']}", *(f"    {line}" for line in plugin["traceback"].splitlines())]
    lines += [f"  warning: {plugin['warning']}"] if plugin["warning"] else []
    return "\n".join([*lines, columns(_part_lines(plugin["parts"]))]).rstrip()


def _part_lines(parts: dict[str, list[Entry]]) -> list[tuple[str, str, str]]:
    """Return recipe key, name and description of each part in batch order; a key stands on its first line only."""
    lines: list[tuple[str, str, str]] = []
    for hook in HOOKS.values():
        listed = folded((part["name"], part["about"]) for part in parts.get(hook.key, ()))
        lines += [(hook.key if not number else "", *line) for number, line in enumerate(listed)]
    return lines
