"""Commands that diagnose and compare runs: signal, why, compare, sweep, new, doctor."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rlm_plugins.cli.output import announce, echo
from rlm_plugins.cli.typer_app import AsJson, Overrides, Recipe, Trust, print_result, terminal_width


def signal(
    recipe: Recipe,
    overrides: Overrides = None,
    prompts: Annotated[int, typer.Option(min=1, help="Training prompts, up to whole steps.")] = 24,
    stage: Annotated[str | None, typer.Option(help="A stage by name (default: the first one with rewards).")] = None,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Sample from the initial policy and score it: is there anything to learn?

    JSON: {stage, prompts, group_size, reward, rewards, metric, pass_at_g, groups_that_differ, ended, tokens,
    seconds_per_step, advice, …}.
    """
    from rlm_plugins.recipe.resolve import check_names
    from rlm_plugins.run.recipe_argument import read

    check_names(*read(recipe, overrides))  # a typing error is reported before torch is imported
    announce()
    from rlm_lab import initial_signal

    data = initial_signal.signal(recipe, overrides or [], prompts=prompts, stage=stage)
    print_result(data, initial_signal.render(data), as_json)


def why(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, finished or running.")],
    as_json: AsJson = False,
) -> None:
    """Diagnose a run: what is wrong, the evidence, and the override that mends it.

    JSON: a list of {stage, steps, findings: [{name, stage, step, until, severity, evidence, remedy, label, since}],
    sample: null or {step, prompt, completion, columns, rewards}}.
    """
    from rlm_lab import why as diagnosis

    report = diagnosis.why(run)
    print_result(report, diagnosis.render(run, report), as_json)


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")], as_json: AsJson = False
) -> None:
    """Compare runs: scores, the settings in which they differ, means over seeds.

    JSON: {runs: [{run, settings, metric, before, after, low, high, rows, seconds, findings}], groups: [{settings,
    runs, mean, least, largest}]}.
    """
    from rlm_lab import compare as comparison

    data = comparison.compare(runs)
    print_result(data, comparison.render(data, terminal_width()), as_json)


def sweep(
    recipe: Recipe,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=A,B,C", help="Values of a setting: `trainer.learning_rate=1e-4,3e-4`."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per combination.")] = 1,
    race: Annotated[
        bool, typer.Option("--race", help="Train the values of `algorithm=A,B` side by side, a step each in turn.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep (default: runs/NAME-sweep or -race).")] = None,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Train every combination of values and seeds, and compare the runs.

    The same command resumes. With --race one process trains the algorithms on one frozen base, with the same prompts,
    and prints paired differences from the first.

    JSON: as `rlm compare`; with --race a list of {algorithm, runs, metric, before, after, interval, difference, low,
    high, reward, seconds}.
    """
    folder = out or Path("runs") / f"{recipe.stem}-{'race' if race else 'sweep'}"

    def log(line: str) -> None:
        echo(line, err=True)

    if race:
        announce()
        from rlm_lab import race as races
        from rlm_lab import standings

        rows = races.race(*races.algorithms_of(overrides or []), recipe, seeds=seeds, out=folder, echo=log)
        print_result(rows, standings.render(rows), as_json)
        return
    from rlm_lab import compare as comparison
    from rlm_lab.sweep import sweep as run_sweep

    data = comparison.compare(run_sweep(recipe, overrides or [], seeds, folder, log, trust=trust))
    print_result(data, comparison.render(data, terminal_width()), as_json)


def new(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="reward, advantage, policy_loss, penalty, environment, …")
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the part.")],
    folder: Annotated[Path, typer.Option(help="Parent folder of the package.")] = Path(),
) -> None:
    """Create a package with one working part and its tests, ready to edit."""
    from rlm_lab import scaffold

    created = [] if folder.exists() else [f"new folder: {folder}"]
    files = scaffold.create(kind, name, folder)
    package = os.path.commonpath(files)
    echo("\n".join([*created, *map(str, files)]))
    echo(f"next: pip install -e {package}, pytest {package}, then edit the part")


def doctor(
    recipe: Annotated[
        Path | None, typer.Argument(metavar="[RECIPE]", help="A recipe or a run: does it resume to the bit?")
    ] = None,
    overrides: Overrides = None,
    at: Annotated[
        list[int] | None, typer.Option(min=1, max=4, help="Step of the interruption; repeatable (default: all).")
    ] = None,
    disable: Annotated[str | None, typer.Option(metavar="PLUGIN", help="Leave a plugin out from now on.")] = None,
    enable: Annotated[str | None, typer.Option(metavar="PLUGIN", help="Use a disabled plugin again.")] = None,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Examine this installation, or whether a recipe resumes to the bit.

    Without a recipe it prints machine, versions against the tested range, plugins, sandbox, disk and problems, to paste
    into a report. With a recipe it interrupts a tiny stand-in at each step of each stage and resumes it; the exit code
    is 1 if a file differs.

    JSON: {system, versions: [{name, installed, tested, problem}], plugins: [{name, origin, state, problem}], sandbox,
    disk: [{path, free_gib, problem}], problems}; with a recipe a list of {stage, step, equal, differs}.
    """
    from rlm_lab import doctor as examination

    if disable is not None or enable is not None:
        echo(f"disabled: {', '.join(examination.switch(disable, enable)) or 'none'}")
        return
    if recipe is None:
        data = examination.doctor()
        print_result(data, examination.render(data), as_json)
        return
    announce()
    from rlm_lab import resume_check as checks

    results = checks.resume_check(recipe, overrides or [], at or ())
    print_result(results, checks.render(results), as_json)
    if not all(result["equal"] for result in results):
        raise typer.Exit(1)
