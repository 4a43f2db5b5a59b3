"""Commands that diagnose and compare runs: signal, why, compare, sweep, race, new, doctor, resume-check."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from rlm_plugins.cli.output import echo
from rlm_plugins.cli.typer_app import AsJson, Overrides, Recipe, Trust, print_result


def signal(
    recipe: Recipe,
    overrides: Overrides = None,
    prompts: Annotated[int, typer.Option(min=1, help="Number of training prompts.")] = 24,
    stage: Annotated[str | None, typer.Option(help="A stage by name (default: the first one with rewards).")] = None,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Sample from the initial policy of a recipe and score it: is there anything to learn? Nothing is trained.

    JSON: {stage, prompts, group_size, reward, rewards, metric, pass_at_g, groups_that_differ, ended, tokens,
    seconds_per_step, advice, …}.
    """
    from rlm_plugins.cli.recipe_argument import read
    from rlm_plugins.recipe.resolve import check_names

    check_names(*read(recipe, overrides))  # a typing error is reported before torch is imported
    from rlm_lab import initial_signal

    data = initial_signal.signal(recipe, overrides or [], prompts=prompts, stage=stage)
    print_result(data, initial_signal.render(data), as_json)


def why(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, finished or running.")],
    as_json: AsJson = False,
) -> None:
    """Diagnose a run: each violated rule with its evidence and the override that mends it.

    JSON: a list of {stage, steps, findings: [{name, stage, step, until, severity, evidence, remedy, label, since}]}.
    """
    from rlm_lab import why as diagnosis

    report = diagnosis.why(run)
    print_result(report, diagnosis.render(run, report), as_json)


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")], as_json: AsJson = False
) -> None:
    """Compare runs: held-out scores, the settings in which they differ, and means over seeds.

    JSON: {runs: [{run, settings, metric, before, after, low, high, rows, seconds, findings}], groups: [{settings,
    runs, mean, least, largest}]}.
    """
    from rlm_lab import compare as comparison

    data = comparison.compare(runs)
    print_result(data, comparison.render(data), as_json)


def sweep(
    recipe: Recipe,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=A,B,C", help="Values of a setting: `trainer.learning_rate=1e-4,3e-4`."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per combination.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep (default: runs/NAME-sweep).")] = None,
    trust: Trust = False,
) -> None:
    """Train every combination of values and seeds, and compare the runs; the same command resumes."""
    from rlm_lab import compare as comparison
    from rlm_lab.sweep import sweep as run_sweep

    folder = out or Path("runs") / f"{recipe.stem}-sweep"
    folders = run_sweep(recipe, overrides or [], seeds, folder, echo, trust=trust)
    echo(comparison.render(comparison.compare(folders)))


def race(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="ALGORITHM... RECIPE [KEY=VALUE...]", help="Algorithms, a recipe with an adapter, overrides."
        ),
    ],
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per algorithm.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder of the race (default: runs/NAME-race).")] = None,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Train algorithms side by side on one frozen base: same prompts, a step each in turn; the same command resumes.

    JSON: a list of {algorithm, runs, metric, before, after, interval, difference, low, high, reward, seconds}.
    """
    from rlm_lab import race as races
    from rlm_lab.standings import render

    algorithms, recipe, overrides = races.split_words(words)
    folder = out or Path("runs") / f"{recipe.stem}-race"
    data = races.race(algorithms, recipe, overrides, seeds, folder, lambda line: echo(line, err=True))
    print_result(data, render(data), as_json)


def new(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="reward, advantage, policy_loss, penalty, environment, …")
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the part.")],
    folder: Annotated[Path, typer.Option(help="Parent folder of the package.")] = Path(),
) -> None:
    """Create a package with one working part and its tests, ready to edit."""
    from rlm_lab import scaffold

    files = scaffold.create(kind, name, folder)
    package = os.path.commonpath(files)
    echo("\n".join(map(str, files)))
    echo(f"next: pip install -e {package}, pytest {package}, then edit the part")


def doctor(as_json: AsJson = False) -> None:
    """Print machine, versions against the tested range, plugins, sandbox, disk and problems, to paste into a report.

    JSON: {system, versions: [{name, installed, tested, problem}], plugins: [{name, origin, state, problem}], sandbox,
    disk: [{path, free_gib, problem}], problems}.
    """
    from rlm_lab import doctor as examination

    data = examination.doctor()
    print_result(data, examination.render(data), as_json)


def resume_check(
    recipe: Recipe,
    overrides: Overrides = None,
    at: Annotated[list[int] | None, typer.Option(min=1, max=4, help="Step; repeatable (default: all).")] = None,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Check that a recipe resumes to the bit: a tiny stand-in is interrupted at each step of each stage and resumed.

    The exit code is 1 if a file differs. JSON: a list of {stage, step, equal, differs}.
    """
    from rlm_lab import resume_check as checks

    results = checks.resume_check(recipe, overrides or [], at or ())
    print_result(results, checks.render(results), as_json)
    if not all(result["equal"] for result in results):
        raise typer.Exit(1)


PANELS: dict[str, tuple[Any, ...]] = {
    "Start": (signal,),
    "Look": (why, compare, sweep, race),
    "Extend": (new,),
    "Ship": (doctor, resume_check),
}
COMMANDS: dict[str, Any] = {}
for _panel, _commands in PANELS.items():
    for _command in _commands:
        _command.panel = _panel
        COMMANDS[_command.__name__.replace("_", "-")] = _command
