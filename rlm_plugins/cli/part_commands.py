"""Commands on plugins."""

from __future__ import annotations

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
