"""Commands on a recipe: train, check, show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from rlm_plugins.cli.arguments import AsJson, Overrides, Recipe, Trust, print_result


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
    trust: Trust = False,
) -> None:
    """Train a model from a recipe. An existing run is never overwritten: the next one is NAME-2.

    Several processes: accelerate launch -m rlm_plugins train RECIPE
    """
    from rlm_plugins.durable.stop_signals import current

    with current():
        from rlm_plugins.cli.recipe_argument import read
        from rlm_plugins.recipe.resolve import check_names

        check_names(*read(recipe, overrides, allow_changed or ()))  # before torch is imported
        from rlm_plugins.cli.launch import launch

        launch(recipe, overrides or [], name=name, out=out, resume=resume, allow_changed=allow_changed or ())


def check(recipe: Recipe, overrides: Overrides = None, as_json: AsJson = False, trust: Trust = False) -> None:
    """Check everything a run needs without loading weights: code, parts, data, batch, objective, speed, memory.

    JSON: a list of stages, each with name, code, parts, data, batch, objective, legend, speed, memory, warnings.
    """
    from rlm_plugins.cli.recipe_argument import read
    from rlm_plugins.recipe.compose import compose
    from rlm_plugins.recipe.resolve import located

    parsed, registry = read(recipe, overrides)
    composed = compose(parsed, registry)  # names and knobs are checked before torch is imported
    from rlm_plugins.cli.trust import code_of, report
    from rlm_plugins.report.check_report import examine, render

    code = code_of(parsed)
    code_entries = [vars(entry) for entry in code]
    stages = []
    for stage, path in zip(composed, parsed.stage_paths, strict=True):
        with located(parsed, path):
            stages.append({**examine(stage, registry), "code": code_entries})
    print_result(stages, "\n\n\n".join([report(code), *map(render, stages)]) + "\n\nok", as_json)


def show(recipe: Recipe, overrides: Overrides = None, as_json: AsJson = False, trust: Trust = False) -> None:
    """Print the resolved recipe: every knob of every part, and the origin of each value.

    JSON: a list of {path, value, origin}.
    """
    from rlm_plugins.cli.recipe_argument import read
    from rlm_plugins.recipe.compose import compose, explain_origins
    from rlm_plugins.report.text_layout import columns

    parsed, registry = read(recipe, overrides)
    values = explain_origins(parsed, compose(parsed, registry, build_environment=False))
    data = [{"path": path, "value": value, "origin": origin} for path, value, origin in values]
    lines = columns(((p, json.dumps(v, ensure_ascii=False), origin) for p, v, origin in values), indent="")
    print_result(data, lines, as_json)
