"""A skill file for coding agents: how to write and run a recipe, with keys, commands and parts of the registry."""

from __future__ import annotations

from importlib.resources import files

from rlm_lab.plugin_list import index
from rlm_lab.recipe_keys import recipe_keys
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.registry import Registry
from rlm_plugins.report.objective_text import about

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
