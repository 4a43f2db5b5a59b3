"""Commands of this package: ``rlm reward probe`` and ``rlm reward audit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rlm_plugins.cli.typer_app import AsJson, Load, Trust, print_result


def probe(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A reward: `accuracy`, `plugin/name`, or its label in the recipe.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Knobs of the reward; with --recipe: overrides of the recipe."),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(exists=True, help="Recipe that supplies knobs, examples and the other rewards.")
    ] = None,
    environment: Annotated[
        str, typer.Option(help="Environment that supplies the examples if there is no recipe.")
    ] = "addition",
    answer: Annotated[str, typer.Option(help="Column with the correct answers.")] = "answer",
    form: Annotated[list[str] | None, typer.Option(help="Template of an answer: `It is {answer}`; repeatable.")] = None,
    rows: Annotated[int, typer.Option(min=2, help="Maximum number of examples.")] = 24,
    load: Load = None,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Score completions of known quality with a reward: correct, empty, enumerated, very long, wrong, reordered.

    The exit code is 0 whatever the report finds. JSON: {reward, gold, traps, behavior, agreement,
    findings, …}.
    """
    from rlm_audit.probe import probe as run_probe
    from rlm_audit.probe_report import findings, render

    data = run_probe(
        name,
        settings or [],
        recipe=recipe,
        environment=environment,
        answer=answer,
        forms=form or [],
        rows=rows,
        load=load or [],
    )
    print_result({**data, "findings": findings(data)}, render(data), as_json)


def audit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A reward: `math_accuracy`, or `plugin/name`.")],
    settings: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Knobs of the reward.")] = None,
    cases: Annotated[
        str, typer.Option(help="Cases: `mathematics`, `numbers`, … or `file.py:FAMILY` (default: the reward's own).")
    ] = "",
    number: Annotated[int, typer.Option(min=1, help="Number of generated cases, over all classes.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of the cases.")] = 0,
    form: Annotated[str, typer.Option(help="Text around an answer: `It is {answer}`.")] = "",
    accepted: Annotated[float, typer.Option(help="Score above which an answer counts as accepted.")] = 0.5,
    only: Annotated[list[str] | None, typer.Option("--class", help="Start of names of classes; repeatable.")] = None,
    load: Load = None,
    as_json: AsJson = False,
) -> None:
    """Score thousands of generated answers that are right or wrong by construction: a regression test of a reward.

    The exit code is 0 whatever the report finds. JSON: {reward, family, seed, cases, slowest, classes, totals}.
    """
    from rlm_audit import command

    options: dict[str, Any] = {"cases": cases, "number": number, "seed": seed, "form": form, "accepted": accepted}
    lists: dict[str, Any] = {"classes": only or [], "load": load or []}
    data = command.audit(name, settings or [], **options, **lists)
    print_result(data, command.render(data), as_json)


rewards = typer.Typer(help="Test a reward before training with it.", no_args_is_help=True, add_completion=False)
rewards.command()(probe)
rewards.command()(audit)
rewards.panel = "Extend"  # type: ignore
