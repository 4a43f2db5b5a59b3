"""Commands on parts and plugins: plugins, new, doctor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rlm_plugins.cli.arguments import AsJson, Load, print_result
from rlm_plugins.cli.output import echo


def plugins(
    load: Load = None,
    as_json: AsJson = False,
    disable: Annotated[str | None, typer.Option(metavar="NAME", help="Leave a plugin out from now on.")] = None,
    enable: Annotated[str | None, typer.Option(metavar="NAME", help="Use a disabled plugin again.")] = None,
) -> None:
    """List the plugins and their parts by recipe key. A broken plugin is listed with its traceback.

    JSON: a list of {name, origin, error, warning, traceback, parts: {key: [{name, full_name, about}]}}.
    """
    from rlm_plugins.registry.disabled import disabled, set_disabled

    for name, off in ((disable, True), (enable, False)):
        if name is not None:
            set_disabled(name, disable=off)
            echo(f"disabled: {', '.join(sorted(disabled())) or 'none'}")
    if disable is not None or enable is not None:
        return
    from rlm_plugins.cli.plugins import plugins as list_plugins
    from rlm_plugins.cli.plugins import render
    from rlm_plugins.registry import Registry

    data = list_plugins(Registry(load or []))
    print_result(data, render(data), as_json)


def new(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="reward, advantage, policy_loss, penalty, environment, …")
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the part.")],
    folder: Annotated[Path, typer.Option(help="Parent folder of the package.")] = Path(),
) -> None:
    """Create a package with one working part and its tests, ready to edit."""
    from rlm_plugins.cli import new as scaffold

    files = scaffold.create(kind, name, folder)
    package = os.path.commonpath(files)
    echo("\n".join(map(str, files)))
    echo(f"next: pip install -e {package}, pytest {package}, then edit the part")


def doctor(as_json: AsJson = False) -> None:
    """Print machine, versions against the tested range, plugins, sandbox, disk and problems, to paste into a report.

    JSON: {system, versions: [{name, installed, tested, problem}], plugins: [{name, origin, state, problem}], sandbox,
    disk: [{path, free_gib, problem}], problems}.
    """
    from rlm_plugins.cli.doctor import doctor as examine
    from rlm_plugins.cli.doctor import render

    data = examine()
    print_result(data, render(data), as_json)
