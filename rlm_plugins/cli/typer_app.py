"""``rlm``: the commands of the core. Each declares its arguments and calls the code that does the work.

That code is imported inside the command, so that ``rlm --help`` imports neither torch nor TRL.
"""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from rlm_plugins import __version__
from rlm_plugins.cli.output import DEBUG, ErrorReportingGroup, WarningHandler, announce, echo
from rlm_plugins.durable.console import keep_going
from rlm_plugins.errors import RlmError
from rlm_plugins.registry.index import tolerate_damage

Recipe = Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe (YAML), or the folder of a run.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Overrides of the recipe: `algorithm.policy_loss.epsilon=0.3`."),
]
Load = Annotated[list[Path] | None, typer.Option(exists=True, dir_okay=False, help="Load a file of parts; repeatable.")]


def _grant(trust: bool) -> bool:
    if trust:
        from rlm_plugins.run.recipe_argument import grant_all

        grant_all()
    return trust


Trust = Annotated[
    bool, typer.Option(callback=_grant, help="Trust the code that the recipe runs (see `rlm check`), and remember it.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; its keys are stable.")]


def terminal_width() -> int:
    """Return the columns of the terminal; 120 if there is none."""
    return shutil.get_terminal_size((120, 24)).columns


def print_result(data: Any, text: str, as_json: bool) -> None:
    """Print plain data as JSON, or its text.

    Args:
        data: What `--json` prints.
        text: What a person reads.
        as_json: Whether `--json` was given.
    """
    echo(json.dumps(data, indent=2, ensure_ascii=False, default=str) if as_json else text)


def train(
    recipe: Recipe,
    overrides: Overrides = None,
    name: Annotated[str | None, typer.Option(help="Name of the run (default: the recipe's name).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run (default: runs/NAME).")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the newest unfinished run of that name, or the one at --out.")
    ] = False,
    allow_changed: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="Resume although this key has changed, or a key below it; repeatable."),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Do not resume where sums are rounded differently.")] = False,
    trust: Trust = False,
) -> None:
    """Train a model from a recipe; a second run is NAME-2.

    Several processes: accelerate launch -m rlm_plugins train RECIPE
    """
    from rlm_plugins.durable.stop_signals import current

    with current():
        from rlm_plugins.recipe.resolve import check_names
        from rlm_plugins.run.recipe_argument import read

        stages = check_names(*read(recipe, overrides, allow_changed or ()))  # before torch is imported
        for section in (x for stage in stages for x in stage.sections.values()):
            os.environ.update(section.environment or {})
        announce()
        from rlm_plugins.run.launch import launch

        allowed = allow_changed or ()
        launch(recipe, overrides or [], name=name, out=out, resume=resume, allow_changed=allowed, exact=exact)


def check(
    recipe: Recipe,
    overrides: Overrides = None,
    full: Annotated[
        bool, typer.Option("--full", help="Print parts, data, objective, memory, and each value with its origin.")
    ] = False,
    processes: Annotated[int, typer.Option(min=1, help="Plan a launch with so many processes.")] = 1,
    sharding: Annotated[
        Literal["none", "fsdp2", "zero2", "zero3"], typer.Option(help="Plan a launch that shards over them.")
    ] = "none",
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Check everything a run needs, without loading weights.

    JSON: a list of stages, each with name, code, parts, data, batch, objective, legend, speed, memory, warnings, and
    settings: a list of {path, value, origin}.
    """
    from rlm_plugins.recipe.compose import compose, explain_origins
    from rlm_plugins.recipe.resolve import located
    from rlm_plugins.run.recipe_argument import read
    from rlm_plugins.workers.distributed import planned

    parsed, registry = read(recipe, overrides)
    announce()
    with planned(processes, sharding):
        composed = compose(parsed, registry)  # names and knobs are checked before torch is imported
    from rlm_plugins.report.check_report import examine, render, summary
    from rlm_plugins.run.recipe_argument import code_of, report
    from rlm_plugins.trainer.options import arguments, check_sharding

    code = code_of(parsed)
    code_entries = [vars(entry) for entry in code]
    stages = []
    for stage, path in zip(composed, parsed.stage_paths, strict=True):
        with located(parsed, path), planned(processes, sharding):
            if stage.equation is not None:
                check_sharding(stage, arguments(stage))
            settings = explain_origins(parsed, stage, path)
            stages.append({**examine(stage, registry), "code": code_entries, "settings": settings})
    if full:
        print_result(stages, "\n\n\n".join([report(code), *map(render, stages)]) + "\n\nok", as_json)
    else:
        print_result(stages, summary(stages, terminal_width()), as_json)


app = typer.Typer(
    cls=ErrorReportingGroup,
    name="rlm",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for command in (check, train):
    app.command(rich_help_panel="Start")(command)


def main() -> None:
    """Run the command ``rlm``."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file that is opened would take its place, and what is printed
            os.open(os.devnull, os.O_RDWR)
    if "OMP_WAIT_POLICY" not in os.environ:
        # GNU OpenMP's threads wait in a loop of milliseconds; beside another process that takes most of the CPU time
        os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    if os.environ.get("RLM_DEBUG") != "1":
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot encode Â must not end a run
    keep_going("stderr")  # a message that cannot be written changes no exit code
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
    """Reinforcement learning for reasoning models: every symbol of the equation is a plugin."""
    if debug:
        os.environ["RLM_DEBUG"] = "1"
    try:
        os.getcwd()
    except FileNotFoundError:
        raise RlmError("the working directory was removed", hint="change to a folder that exists") from None
