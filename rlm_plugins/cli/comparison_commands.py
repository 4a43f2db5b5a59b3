"""Commands on several runs: compare, sweep, race."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rlm_plugins.cli.arguments import AsJson, Recipe, Trust, print_result
from rlm_plugins.cli.output import echo


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs.")], as_json: AsJson = False
) -> None:
    """Compare runs: held-out scores, the settings in which they differ, and means over seeds.

    JSON: {runs: [{run, settings, metric, before, after, low, high, rows, seconds, findings}], groups: [{settings,
    runs, mean, least, largest}]}.
    """
    from rlm_plugins.cli.compare import compare as compare_runs
    from rlm_plugins.cli.compare import render

    data = compare_runs(runs)
    print_result(data, render(data), as_json)


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
    from rlm_plugins.cli.compare import compare as compare_runs
    from rlm_plugins.cli.compare import render
    from rlm_plugins.cli.sweep import sweep as run_sweep

    folder = out or Path("runs") / f"{recipe.stem}-sweep"
    folders = run_sweep(recipe, overrides or [], seeds, folder, echo, trust=trust)
    echo(render(compare_runs(folders)))


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
    from rlm_plugins.cli.race import race as run_race
    from rlm_plugins.cli.race import render, split_words

    algorithms, recipe, overrides = split_words(words)
    folder = out or Path("runs") / f"{recipe.stem}-race"
    data = run_race(algorithms, recipe, overrides, seeds, folder, lambda line: echo(line, err=True))
    print_result(data, render(data), as_json)
