"""``rlm``: the commands in their order. Each declares its arguments and calls the code that does the work.

That code is imported inside the command, so that ``rlm --help`` imports neither torch nor TRL.
"""

from __future__ import annotations

import io
import logging
import os
import sys
import warnings
from typing import Annotated

import typer

from rlm_plugins import __version__
from rlm_plugins.cli import part_commands, recipe_commands, run_commands
from rlm_plugins.cli.error_report import DEBUG, ErrorReportingGroup, WarningHandler
from rlm_plugins.cli.output import echo
from rlm_plugins.entry_points import tolerate_damage
from rlm_plugins.errors import RlmError

app = typer.Typer(
    cls=ErrorReportingGroup,
    name="rlm",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

PANELS = {
    "Start": (recipe_commands.check, recipe_commands.train),
    "Look": (run_commands.evaluate, run_commands.sample, recipe_commands.show),
    "Extend": (part_commands.plugins,),
    "Ship": (run_commands.export,),
}
for panel, commands in PANELS.items():
    for command in commands:
        name = "eval" if command is run_commands.evaluate else None
        app.command(name, rich_help_panel=panel)(command)


def main() -> None:
    """Run the command ``rlm``."""
    if "OMP_WAIT_POLICY" not in os.environ:
        # GNU OpenMP's threads wait in a loop of milliseconds; beside another process that takes most of the CPU time
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    if os.environ.get("RLM_DEBUG") != "1":
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot encode Â must not end a run
    logging.lastResort = WarningHandler(logging.WARNING)  # of loggers without a handler: this package and its plugins
    tolerate_damage()
    app()


def _version(requested: bool) -> None:
    if requested:
        echo(f"rlm {__version__}")
        raise typer.Exit


@app.callback()
def rlm(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Print full tracebacks (or set RLM_DEBUG=1).")] = False,
) -> None:
    """Every symbol of the reinforcement-learning equation for reasoning models is a plugin."""
    if debug:
        os.environ["RLM_DEBUG"] = "1"
    try:
        os.getcwd()
    except FileNotFoundError:
        raise RlmError("the working directory was removed", hint="change to a folder that exists") from None
