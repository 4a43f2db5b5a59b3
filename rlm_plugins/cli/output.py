"""Output of the commands: every text of a recipe, run, completion or error passes through :func:`echo`."""

from __future__ import annotations

from typing import Literal

import typer

from rlm_plugins.messages import visible


def echo(text: object = "", *, err: bool = False, fg: Literal["red", "yellow"] | None = None) -> None:
    """Print a text, with control characters as codes: a name or completion must not act on the terminal.

    Args:
        text: Printed with a line feed.
        err: True for standard error.
        fg: Color, on a terminal.
    """
    typer.secho(visible(str(text)), fg=fg, err=err)
