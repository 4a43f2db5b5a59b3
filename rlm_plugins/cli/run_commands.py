"""Commands on runs: eval, export, sample, why, view, replay."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rlm_plugins.cli.arguments import AsJson, Overrides, Trust, print_result, terminal_width
from rlm_plugins.cli.output import echo
from rlm_plugins.errors import RlmError


def evaluate(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="A run or a recipe; with --on also an adapter, a model, a hub name."),
    ],
    overrides: Overrides = None,
    on: Annotated[
        list[Path] | None,
        typer.Option(metavar="RECIPE", help="Recipe whose examples and rewards are used instead; repeatable."),
    ] = None,
    rows: Annotated[int | None, typer.Option(min=0, help="Maximum number of held-out examples; 0: all.")] = None,
    stage: Annotated[str | None, typer.Option(help="A stage by name (default: the last finished one).")] = None,
    samples: Annotated[int, typer.Option(min=0, help="Number of completions to print.")] = 0,
    k: Annotated[int, typer.Option("-k", min=0, help="Completions sampled per example: pass@k, majority@k.")] = 0,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Evaluate a run, an adapter or a model on held-out examples, with 95 % intervals.

    JSON: {set, stage, model, metric, score, low, high, rows, rewards, samples}; with -k also k, mean_at_k, pass_at_k,
    majority_at_k, sampled; with several sets also sets, a list of these.
    """
    from rlm_plugins.cli.evaluate import evaluate as run_evaluation
    from rlm_plugins.cli.judgement_text import as_data, render

    judged = run_evaluation(source, overrides or [], rows=rows, stage=stage, k=k, on=on or [])
    print_result(as_data(judged, samples), render(judged, samples), as_json)


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    to: Annotated[str, typer.Option(metavar="TARGET", help="A new folder, or hub:OWNER/NAME.")],
    merge: Annotated[bool, typer.Option("--merge", help="Merge the adapter into its base.")] = False,
    stage: Annotated[str | None, typer.Option(help="A stage by name (default: the last finished one).")] = None,
    trust: Trust = False,
) -> None:
    """Write the model of a run with its model card, for transformers and PEFT without this project."""
    from rlm_plugins.cli.export import export as write

    echo(f"exported: {write(run, to, merge=merge, stage=stage)}")


def sample(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A run, a recipe, an adapter, a model or a hub name.")
    ],
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="Text (default: a chat loop).")] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of completions.")] = 1,
    temperature: Annotated[float, typer.Option(min=0, help="Sampling temperature; 0: greedy.")] = 1.0,
    max_new_tokens: Annotated[int, typer.Option(min=0, help="Longest completion; 0: as in training.")] = 0,
    image: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="An image for the first message; repeatable.")
    ] = None,
    stage: Annotated[str | None, typer.Option(help="A stage by name (default: the last finished one).")] = None,
    trust: Trust = False,
) -> None:
    """Sample completions from the model of a run; without PROMPT, chat until the input ends."""
    from rlm_plugins.cli.sample import Sampler, chat

    sampler = Sampler(source, stage, image or [])
    if prompt is None:
        prefix = "> " if sys.stdin.isatty() else ""
        for answer in chat(sampler, lambda: input(prefix), temperature=temperature, max_new_tokens=max_new_tokens):
            echo(answer)
    else:
        echo("\n".join(sampler.complete(prompt, count, temperature, max_new_tokens)))


def why(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, finished or running.")],
    as_json: AsJson = False,
) -> None:
    """Diagnose a run: each violated rule with its evidence and the override that mends it.

    JSON: a list of {stage, steps, findings: [{name, stage, step, until, severity, evidence, remedy, label}]}.
    """
    from rlm_plugins.cli.why import render
    from rlm_plugins.cli.why import why as diagnose_run

    report = diagnose_run(run)
    print_result(report, render(run, report), as_json)


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
    """Write a run as one HTML file: curves, groups, and each token by its share of the gradient (package rlm-view)."""
    command = view_package()
    if live:
        command.view_live(runs, terminal_width(), echo)
    else:
        echo(f"written: {command.view(runs, out, lambda line: echo(line, err=True))}")


def view_package() -> Any:
    """Return the module of the package rlm-view that writes pages.

    Raises:
        RlmError: The package is not installed.
    """
    try:
        from rlm_view import command
    except ModuleNotFoundError as error:
        raise RlmError("`rlm view` requires the package rlm-view", hint="pip install rlm-view") from error
    return command


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
    from rlm_plugins.cli.replay import report
    from rlm_plugins.cli.replay_text import render

    numbers = [text for text in changes or [] if text.isdigit()]
    overrides = [text for text in changes or [] if not text.isdigit()]
    if len(numbers) > 1:
        raise RlmError(f"expected one step, got {', '.join(numbers)}", hint="`rlm replay runs/demo 40`")
    data = report(run, int(numbers[0]) if numbers else None, overrides, with_model=with_model)
    print_result(data, render(data), as_json)
