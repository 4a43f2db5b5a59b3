"""Commands of installed packages (hook ``rlm_commands``): listed without importing a package, imported when called."""

from __future__ import annotations

import importlib.metadata
from functools import cache
from typing import Any

import typer

from rlm_plugins.errors import PluginError
from rlm_plugins.registry.disabled import disabled
from rlm_plugins.registry.index import PluginIndex, module_of

HOOK = "rlm_commands"
PANELS = ("Start", "Look", "Extend", "Ship")
"""Panels of ``rlm --help``, in this order; a command names its own by an attribute `panel`."""
OTHERS = "From packages"


@cache
def plugin_commands() -> dict[str, tuple[str, str, str]]:
    """Return name of a command → its plugin, the first line of its docstring, and its panel of ``rlm --help``."""
    points = {p.name: p for p in importlib.metadata.entry_points(group="rlm") if p.name not in disabled()}
    index = PluginIndex({name: module_of(point) for name, point in points.items()})
    if index.unknown():
        from rlm_plugins.registry import Registry

        registry = Registry()
        registry.load_all()  # which completes the index
        index = registry.index
    commands = {}
    for name, (plugin, about) in index.listed(HOOK).items():
        panel, _, text = about.rpartition("|")
        commands[name] = plugin, text, panel or OTHERS
    return commands


def described_command(name: str) -> Any:
    """Return a command that has only the description of a plugin's, for ``rlm --help``."""
    _, about, panel = plugin_commands()[name]
    app = typer.Typer(add_completion=False)
    app.command(name, help=about, rich_help_panel=panel)(lambda: None)
    return typer.main.get_command(app)


def load_command(name: str) -> Any:
    """Import the package of a command and return the command.

    Raises:
        PluginError: The package cannot be imported, or has no such command any more.
    """
    plugin, *_ = plugin_commands()[name]
    (point,) = (p for p in importlib.metadata.entry_points(group="rlm") if p.name == plugin)
    try:
        command = getattr(point.load(), HOOK)()[name]
    except Exception as error:
        problem = f"the command cannot be imported: {type(error).__name__}: {error}"
        hint = f"reinstall the package, or `rlm plugins --disable {plugin}`"
        raise PluginError(problem, where=f"plugin '{plugin}', {HOOK} '{name}'", hint=hint) from error
    if isinstance(command, typer.Typer):
        group = typer.main.get_command(command)
        group.name = name
        return group
    app = typer.Typer(add_completion=False)
    app.command(name)(command)
    return typer.main.get_command(app)
