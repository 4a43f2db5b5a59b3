"""Error reporting of the command line: a short red message, exit code 2, and no traceback of this package."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from rlm_plugins.cli.output import echo
from rlm_plugins.cli.plugin_commands import PANELS, described_command, load_command, plugin_commands
from rlm_plugins.cli.tracebacks import traceback_of_cause
from rlm_plugins.durable import stop_signals
from rlm_plugins.durable.files import file_error
from rlm_plugins.durable.stop_signals import Interrupted
from rlm_plugins.errors import RlmError
from rlm_plugins.messages import visible

DEBUG = "--debug"


class ErrorReportingGroup(TyperGroup):
    """The group of all commands: accepts ``--debug`` anywhere and reports errors as messages."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move ``--debug`` to the front, where the group parses it."""
        rest = [arg for arg in args if arg != DEBUG]
        with printable_usage_errors():
            return super().parse_args(ctx, [DEBUG, *rest] if len(rest) < len(args) else rest)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, those of packages too, panel by panel."""
        names = {name: str(getattr(command, "rich_help_panel", "")) for name, command in self.commands.items()}
        names |= {name: panel for name, (*_, panel) in plugin_commands().items() if name not in names}
        order = [*PANELS, *dict.fromkeys(names.values())]
        return sorted(names, key=lambda name: order.index(names[name]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; of a package only its description, for ``rlm --help``."""
        command = super().get_command(ctx, cmd_name)
        return described_command(cmd_name) if command is None and cmd_name in plugin_commands() else command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return name, command and arguments; a package is imported when its command is called."""
        name = args[0]
        if name not in self.commands and name in plugin_commands():
            return name, load_command(name), args[1:]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; report an `RlmError`, or a file or template that fails, as a message with exit code 2.

        After a signal the message says how to go on, and the exit code is 128 + the signal.
        """
        try:
            with printable_usage_errors():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            echo("; ".join(filter(None, [_reason(stop), stop_signals.current().advice])), err=True)
            raise typer.Exit(stop.exit_code if isinstance(stop, Interrupted) else 130) from None
        except Exception as error:
            expected = as_message(error)
            if os.environ.get("RLM_DEBUG") == "1" or expected is None:
                raise
            print_error(expected)
            raise typer.Exit(2) from None


@contextlib.contextmanager
def printable_usage_errors() -> Iterator[None]:
    """Have click print the user's words in its errors as text: an unknown option may hold control characters."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # a ClickException, of click or of the copy inside typer
            message = visible(error.format_message())
            error.format_message = lambda: message
        raise


class WarningHandler(logging.Handler):
    """Prints log records to stderr as ``warning: …``, in the form of errors."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        echo(f"{record.levelname.lower()}: {record.getMessage()}", fg="yellow", err=True)


def _reason(stop: KeyboardInterrupt) -> str:
    return f"stopped by {stop}" if isinstance(stop, Interrupted) else "interrupted"


def as_message(error: Exception) -> RlmError | None:
    """Return an error that is reported as a message; None for one that needs its traceback."""
    if isinstance(error, RlmError):
        return error
    if isinstance(error, OSError) and error.filename is not None:
        return file_error(error, task="used")
    if type(error).__module__ == "jinja2.exceptions":
        return RlmError(f"the chat template failed: {error}", hint="see `chat_template.jinja` beside the tokenizer")
    return None


def print_error(error: RlmError) -> None:
    """Print an error to stderr, with the traceback of third-party code that caused it."""
    rank = os.environ.get("RANK", "0")
    process = "" if rank == "0" else f"[process {rank}] "
    echo(f"{process}error: {error}", fg="red", err=True)
    if trace := traceback_of_cause(error):
        echo(f"\ncaused by\n{trace}", err=True)
