"""Output of the commands: every text, errors as a short message with exit code 2, and the commands of packages."""

from __future__ import annotations

import contextlib
import errno
import importlib.metadata
import logging
import os
import re
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

import typer
from typer.core import TyperGroup

from rlm_plugins.durable import stop_signals
from rlm_plugins.durable.console import keep_going
from rlm_plugins.durable.files import file_error
from rlm_plugins.durable.stop_signals import Interrupted
from rlm_plugins.errors import PluginError, RlmError, nearest, visible
from rlm_plugins.registry.index import PluginIndex, disabled, module_of
from rlm_plugins.report.text_layout import columns


def echo(text: object = "", *, err: bool = False, fg: Literal["red", "yellow"] | None = None) -> None:
    """Print a text, with control characters as codes: a name or completion must not act on the terminal.

    Args:
        text: Printed with a line feed.
        err: True for standard error.
        fg: Color, on a terminal.
    """
    typer.secho(visible(str(text)), fg=fg, err=err)


def announce(text: str = "importing torch and TRL") -> None:
    """Say on a terminal what the next seconds are for; a file or a pipe gets nothing."""
    if sys.stderr is not None and sys.stderr.isatty():
        echo(f"{text} …", err=True)


_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
_PARTS = os.path.join(_PACKAGE, "builtin") + os.sep
_TRAINERS = os.path.join(_PARTS, "trainers.py")


def traceback_of_cause(error: BaseException) -> str:
    """Return the traceback of the third-party error behind an `RlmError`; empty if there is none."""
    cause = error.__cause__
    if cause is None:
        return ""
    return traceback_of_cause(cause) if isinstance(cause, RlmError) else third_party_traceback(cause)


def third_party_traceback(error: BaseException) -> str:
    """Return the traceback of an error from its first third-party frame on; empty if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    first = next((n for n, frame in enumerate(frames) if not _is_internal(frame.filename)), None)
    if first is None and not isinstance(error, SyntaxError):
        return ""
    listed = [] if first is None else ["Traceback:\n", *traceback.format_list(frames[first:])]
    return "".join([*listed, *traceback.format_exception_only(error)]).rstrip()


def _is_internal(file: str) -> bool:
    """Return True for this package's code except its parts, for Python's imports and for pluggy's calls."""
    of_package = file.startswith(_PACKAGE) and (not file.startswith(_PARTS) or file == _TRAINERS)
    of_imports = any(f"{os.sep}{package}{os.sep}" in file for package in ("importlib", "pluggy"))
    return of_package or of_imports or file.startswith("<frozen importlib")


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
        registry.names_of(HOOK)  # which completes the index
        index = registry.index
    commands = {}
    for name, (plugin, about) in index.listed(HOOK).items():
        panel, _, text = about.rpartition("|")
        commands[name] = plugin, text, panel or OTHERS
    return commands


def load_command(name: str) -> Any:
    """Import the package of a command and return the command."""
    plugin, *_ = plugin_commands()[name]
    (point,) = (p for p in importlib.metadata.entry_points(group="rlm") if p.name == plugin)
    try:
        command = getattr(point.load(), HOOK)()[name]
    except Exception as error:
        problem = f"the command cannot be imported: {type(error).__name__}: {error}"
        hint = f"reinstall the package, or `rlm doctor --disable {plugin}`"
        raise PluginError(problem, where=f"plugin '{plugin}', {HOOK} '{name}'", hint=hint) from error
    if isinstance(command, typer.Typer):
        group = typer.main.get_command(command)
        group.name = name
        return group
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name)(command)
    return typer.main.get_command(app)


DEBUG = "--debug"


class ErrorReportingGroup(TyperGroup):
    """The group of all commands: accepts ``--debug`` anywhere and reports errors as messages."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move ``--debug`` to the front, where the group parses it."""
        rest = [arg for arg in args if arg != DEBUG]
        with printable_usage_errors():
            return super().parse_args(ctx, [DEBUG, *rest] if len(rest) < len(args) else rest)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, those of packages too."""
        return list(dict.fromkeys([*self.commands, *plugin_commands()]))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; a package is imported when its command is called."""
        is_of_package = cmd_name not in self.commands and cmd_name in plugin_commands()
        return load_command(cmd_name) if is_of_package else super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write a line per command, panel by panel; no package is imported."""
        lines = {name: (panel, about) for name, (_, about, panel) in plugin_commands().items()}
        for name, command in self.commands.items():
            lines[name] = str(getattr(command, "rich_help_panel", "")), (command.help or "").partition("\n")[0]
        rows = []
        for panel in dict.fromkeys([*PANELS, *(panel for panel, _ in lines.values())]):
            members = sorted((name, about.rstrip(".")) for name, (of, about) in lines.items() if of == panel)
            rows += [("" if number else panel, *member) for number, member in enumerate(members)]
        options = "rlm --version; --debug: full tracebacks (or RLM_DEBUG=1); rlm COMMAND --help: its options"
        formatter.write(f"Usage: rlm COMMAND [ARGUMENTS]\n\n{self.help}\n\n{columns(rows)}\n\n{options}\n")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return name, command and arguments; an unknown command may be that of a package to install."""
        names = self.list_commands(ctx)
        if args[0] not in names and not args[0].startswith("-"):
            from rlm_plugins.registry.registry import package_of  # not at start-up

            package = package_of("rlm_commands", args[0])
            hint = f"pip install {package}" if package else nearest(args[0], names)
            raise RlmError(f"unknown command '{args[0]}'", allowed=", ".join(names), hint=hint)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; report what a user can cause as a message with exit code 2, a signal with 128 + its number."""
        try:
            with printable_usage_errors():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            reason = f"stopped by {stop}" if isinstance(stop, Interrupted) else "interrupted"
            echo("; ".join(filter(None, [reason, stop_signals.current().advice])), err=True)
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
            of_pydantic: list[Any] = getattr(error.__cause__, "errors", list)()  # typer leaves out the value
            text, given = error.format_message(), repr(of_pydantic[0]["input"]) if of_pydantic else ""
            message = visible(text if given in text else f"{text}, got {given}")
            error.format_message = lambda: message
        raise


_print_once = cache(echo)


class WarningHandler(logging.Handler):
    """Prints log records to stderr as ``warning: …``, in the form of errors; a text that is repeated once."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        _print_once(f"{record.levelname.lower()}: {record.getMessage()}", fg="yellow", err=True)


def as_message(error: Exception) -> RlmError | None:
    """Return an error that is reported as a message; None for one that needs its traceback."""
    if isinstance(error, RlmError):
        return error
    if isinstance(error, OSError) and error.filename is not None:
        return file_error(error, task="used")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
        keep_going("stdout")  # or the end of the process would raise the error again
        return file_error(error, "standard output, or a file that the system does not name")
    if isinstance(error, UnicodeEncodeError) and error.reason.startswith("surrogates"):
        word = re.split(r'["\s]', error.object[: error.end])[-1]  # the system's way to hand over bytes
        return RlmError("a path is not UTF-8", where=visible(word), hint="rename the folder or file")
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
