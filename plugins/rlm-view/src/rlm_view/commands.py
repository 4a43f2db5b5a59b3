"""Commands of this package: ``rlm view`` and ``rlm replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlm_plugins.cli.output import echo
from rlm_plugins.cli.typer_app import AsJson, Trust, print_result, terminal_width
from rlm_plugins.errors import RlmError


def view(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN [RUN]", help="The folder of a run, or of two.")],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file (default: view.html in the folder of the run).")
    ] = None,
    live: Annotated[
        bool, typer.Option("--follow", help="Print steps, rewards and completions until the run ends.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Write a run as one HTML file: curves, groups, and each token by its share of the gradient."""
    from rlm_view import command

    if live:
        command.view_live(runs, terminal_width(), echo)
    else:
        echo(f"written: {command.view(runs, out, lambda line: echo(line, err=True))}")


def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, of a stage, or of a capsule.")],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STEP] [KEY=VALUE]...", help="Number of the step; overrides: `algorithm=dapo`."),
    ] = None,
    with_model: Annotated[
        bool, typer.Option("--model", help="Replay the gradient too, from the checkpoint before the step.")
    ] = False,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Compute a stored training step again, without the model: scores, loss, gradient of each token.

    With overrides it tells what they change, token by token. A step that a fault ended fails as it did in the run.
    JSON: {step, stage, fault, differences, recorded, replayed, tokens, gradient}.
    """
    from rlm_view.replay_report import render, report

    numbers = [text for text in changes or [] if text.isdigit()]
    overrides = [text for text in changes or [] if not text.isdigit()]
    if len(numbers) > 1:
        raise RlmError(f"expected one step, got {', '.join(numbers)}", hint="`rlm replay runs/demo 40`")
    data = report(run, int(numbers[0]) if numbers else None, overrides, with_model=with_model)
    print_result(data, render(data), as_json)


for _command in (view, replay):
    _command.panel = "Look"  # type: ignore
