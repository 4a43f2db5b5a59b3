"""The command ``rlm view``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlm_plugins.cli.output import echo
from rlm_plugins.cli.typer_app import Trust, print_result, terminal_width
from rlm_plugins.errors import RlmError


def view(
    words: Annotated[
        list[str],
        typer.Argument(metavar="RUN [RUN] [KEY=VALUE]...", help="One run or two; overrides for a step."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The HTML file (default: view.html in the folder of the run).")
    ] = None,
    live: Annotated[
        bool, typer.Option("--follow", help="Print steps, rewards and completions until the run ends.")
    ] = False,
    step: Annotated[int | None, typer.Option(min=0, help="Compute this stored step again.")] = None,
    with_model: Annotated[
        bool, typer.Option("--model", help="Compute its gradient too, from the checkpoint before the step.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the step as JSON; its keys are stable.")] = False,
    trust: Trust = False,
) -> None:
    """Write a run as one HTML file, or compute a stored step again.

    The page has curves, groups, and each token by its share of the gradient. With --step, or a capsule in place of the
    run, scores, loss and the gradient of each token are computed again without the model. Overrides (`algorithm=dapo`)
    tell what they change, token by token. A step that ended with an error ends with it again.

    JSON: {step, stage, fault, differences, recorded, replayed, tokens, gradient}.
    """
    from rlm_view.capsule import STEP_FILE

    overrides = [word for word in words if "=" in word and not Path(word).exists()]
    runs = [Path(word) for word in words if word not in overrides]
    if live:
        from rlm_view.follow import follow

        if len(runs) != 1:
            raise RlmError(f"expected one run, got {len(runs)}", where="rlm view --follow")
        follow(runs[0], terminal_width(), echo)
    elif step is not None or overrides or with_model or any((run / STEP_FILE).is_file() for run in runs):
        if len(runs) != 1:
            raise RlmError(f"expected one run, got {len(runs)}", hint="`rlm view runs/demo --step 40 algorithm=dapo`")
        from rlm_view.replay_report import render, report

        data = report(runs[0], step, overrides, with_model=with_model)
        print_result(data, render(data), as_json)
    else:
        from rlm_view import page

        echo(f"written: {page.view(runs, out, lambda line: echo(line, err=True))}")


view.panel = "Look"  # type: ignore
