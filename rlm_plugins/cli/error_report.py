"""Error reporting of the command line: a short red message, exit code 2, and no traceback of this package."""

from __future__ import annotations

import os
from typing import Any

import typer
from typer.core import TyperGroup

from rlm_plugins.cli.tracebacks import traceback_of_cause
from rlm_plugins.errors import RlmError

DEBUG = "--debug"


class ErrorReportingGroup(TyperGroup):
    """The group of all commands: accepts ``--debug`` anywhere and reports errors as messages."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move ``--debug`` to the front, where the group parses it."""
        rest = [arg for arg in args if arg != DEBUG]
        return super().parse_args(ctx, [DEBUG, *rest] if len(rest) < len(args) else rest)

    def invoke(self, ctx: Any) -> Any:
        """Run a command and report an `RlmError` as a message with exit code 2."""
        try:
            return super().invoke(ctx)
        except RlmError as error:
            if os.environ.get("RLM_DEBUG") == "1":
                raise
            print_error(error)
            raise typer.Exit(2) from None


def print_error(error: RlmError) -> None:
    """Print an error to stderr, with the traceback of third-party code that caused it."""
    rank = os.environ.get("RANK", "0")
    process = "" if rank == "0" else f"[process {rank}] "
    typer.secho(f"{process}error: {error}", fg="red", err=True)
    if trace := traceback_of_cause(error):
        typer.echo(f"\ncaused by\n{trace}", err=True)
