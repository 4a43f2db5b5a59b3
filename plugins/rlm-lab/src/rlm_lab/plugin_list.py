"""Names of all parts by recipe key, the installed plugins with their parts or error, and the skill file for agents."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from rlm_lab.part_changes import folded
from rlm_lab.recipe_keys import recipe_keys
from rlm_plugins.cli.output import third_party_traceback
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.registry import Registry
from rlm_plugins.registry.loading import required_version
from rlm_plugins.report.objective_text import about
from rlm_plugins.report.text_layout import columns, fitted

Entry = dict[str, Any]


def index(registry: Registry) -> dict[str, list[str]]:
    """Return recipe key → names of its parts, in batch order; the conventions of an algorithm are left out."""
    names = {info.key: [name for name in registry.names(hook) if "@" not in name] for hook, info in HOOKS.items()}
    return {key: listed for key, listed in names.items() if listed}


def render_index(names: dict[str, list[str]], width: int) -> str:
    """Return the names of the parts as text of at most `width` columns, and how to go on."""
    lines = fitted([(key, ", ".join(listed)) for key, listed in names.items()], width)
    lines += ["", "rlm explain NAME; rlm explain algorithms; rlm explain plugins; rlm explain grpo dapo"]
    return "\n".join(lines)


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


_LISTED = ("rlm_rewards", "rlm_algorithms", "rlm_environments")
"""Hooks whose parts have a line each; of the others the names are listed."""


def skill(registry: Registry) -> str:
    """Return the skill as Markdown: its fixed part, then what the registry knows."""
    keys = [f"- `{path}`: {key['doc']}" for path, key in recipe_keys().items() if "." not in path]
    text = (files("rlm_lab") / "skill.md").read_text(encoding="utf-8")
    sections = {"Keys of a recipe": keys}
    for hook in _LISTED:
        named = [(name, registry.find(hook, name)) for name in registry.names(hook) if "@" not in name]
        sections[f"Names for `{HOOKS[hook].key}`"] = [f"- `{name}`: {about(part)}" for name, part in named]
    others = {key: names for key, names in index(registry).items() if f"Names for `{key}`" not in sections}
    sections["Other names"] = [f"- `{key}`: {', '.join(names)}" for key, names in others.items()]
    return text + "".join(f"\n# {title}\n\n" + "\n".join(lines) + "\n" for title, lines in sections.items())
