"""How the command line reports what went wrong: a short red message, exit code 2, and no traceback of ours."""

from __future__ import annotations

import os
from typing import Any

import typer
from typer.core import TyperGroup

from rlm_plugins.cli.tracebacks import cause_of
from rlm_plugins.errors import RlmError

DEBUG = "--debug"


class Door(TyperGroup):
    """The group of all commands; ``--debug`` may stand anywhere on the line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Moves ``--debug`` to where the group looks for it."""
        rest = [arg for arg in args if arg != DEBUG]
        return super().parse_args(ctx, [DEBUG, *rest] if len(rest) < len(args) else rest)

    def invoke(self, ctx: Any) -> Any:
        """Runs a command; an error that was foreseen becomes a message."""
        try:
            return super().invoke(ctx)
        except RlmError as error:
            if os.environ.get("RLM_DEBUG") == "1":
                raise
            complain(error)
            raise typer.Exit(2) from None


def complain(error: RlmError) -> None:
    """Prints an error to stderr; where somebody else's code is behind it, with the traceback of that."""
    rank = os.environ.get("RANK", "0")
    typer.secho(f"{'' if rank == '0' else f'[process {rank}] '}error: {error}", fg="red", err=True)
    if trace := cause_of(error):
        typer.echo(f"\ncaused by\n{trace}", err=True)
