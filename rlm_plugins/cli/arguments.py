"""Arguments and options that several commands share, and how a command prints its result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from rlm_plugins.cli.output import echo

Recipe = Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe (YAML), or the folder of a run.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Overrides of the recipe: `algorithm.policy_loss.epsilon=0.3`."),
]
Load = Annotated[list[Path] | None, typer.Option(help="A Python file to load as a plugin; repeatable.")]


def _grant(trust: bool) -> bool:
    if trust:
        from rlm_plugins.cli.trust import grant_all

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
