"""``rlm``: train · check · show · schema · plugins · algorithms · explain · diff · eval · reward probe · new.

Thin on purpose: each command says what it takes and hands over. What is heavy is imported by the command that needs it.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from rlm_plugins import __version__
from rlm_plugins.cli.error_report import DEBUG, Door

app = typer.Typer(
    cls=Door,
    name="rlm",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

rewards = typer.Typer(no_args_is_help=True)
app.add_typer(rewards, name="reward", help="Look at a reward before it teaches anybody.")

Recipe = Annotated[Path, typer.Argument(metavar="RECIPE", help="A recipe (YAML), or the folder of a run.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Values said anew: `algorithm.policy_loss.epsilon=0.3`."),
]
Load = Annotated[list[Path] | None, typer.Option(help="A Python file to load as a plugin; may be given several times.")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON, for programs; the keys are stable.")]


def main() -> None:
    """The command ``rlm``."""
    if os.environ.get("RLM_DEBUG") != "1":
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no Â shall not end a run
    app()


@app.callback()
def rlm(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=_version, help="The version.")] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Tracebacks instead of messages (or RLM_DEBUG=1).")] = False,
) -> None:
    """Every symbol of the reinforcement-learning equation for reasoning models is a plugin."""
    if debug:
        os.environ["RLM_DEBUG"] = "1"


@app.command()
def train(
    recipe: Recipe,
    overrides: Overrides = None,
    name: Annotated[str | None, typer.Option(help="What to call the run (default: the recipe's name).")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the run (default: runs/NAME).")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the newest unfinished run of that name, or the one at --out.")
    ] = False,
    allow_changed: Annotated[
        bool, typer.Option("--allow-changed", help="Go on although the recipe or a plugin has changed.")
    ] = False,
) -> None:
    """Train a model as a recipe says. A run is never written over: the next one is NAME-2.

    Several processes: accelerate launch -m rlm_plugins train RECIPE
    """
    from rlm_plugins.cli.recipe_argument import read
    from rlm_plugins.recipe.compose import check_names

    check_names(*read(recipe, overrides))  # a slip is told before torch is imported
    from rlm_plugins.cli.launch import launch

    try:
        launch(recipe, overrides or [], name=name, out=out, resume=resume, allow_changed=allow_changed)
    except KeyboardInterrupt:
        typer.echo("interrupted: the same command with --resume goes on from the last checkpoint", err=True)
        raise typer.Exit(130) from None


@app.command()
def check(recipe: Recipe, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Look at everything a run needs, without loading a weight: parts, data, batch, objective, memory.

    JSON: a list of stages, each with name, parts, data, batch, objective, legend, memory.
    """
    from rlm_plugins.cli.recipe_argument import read
    from rlm_plugins.recipe.compose import compose, located

    found, registry = read(recipe, overrides)
    composed = compose(found, registry)  # names and knobs are looked at before torch is imported
    from rlm_plugins.cli.check import examine
    from rlm_plugins.cli.check_report import render

    stages = []
    for stage, place in zip(composed, found.places, strict=True):
        with located(found, place):
            stages.append(examine(stage, registry))
    _show(stages, "\n\n\n".join(map(render, stages)) + "\n\nok", as_json)


@app.command()
def show(recipe: Recipe, overrides: Overrides = None, as_json: AsJson = False) -> None:
    """Print the recipe with everything said: every knob of every part, and where each value comes from.

    JSON: a list of {path, value, origin}.
    """
    from rlm_plugins.cli.recipe_argument import read
    from rlm_plugins.cli.text_layout import columns
    from rlm_plugins.recipe.compose import compose, explain_origins

    found, registry = read(recipe, overrides)
    values = explain_origins(found, compose(found, registry, build_environment=False))
    data = [{"path": path, "value": value, "origin": origin} for path, value, origin in values]
    lines = columns(((p, json.dumps(v, ensure_ascii=False), origin) for p, v, origin in values), indent="")
    _show(data, lines, as_json)


@app.command()
def schema(
    out: Annotated[Path | None, typer.Option(help="A file to write it to (default: standard output).")] = None,
    load: Load = None,
) -> None:
    """Print the JSON Schema of recipes, made from the parts that are installed: completion for your editor.

    In VS Code (YAML extension): first line of a recipe `# yaml-language-server: $schema=recipe.schema.json`.
    """
    from rlm_plugins.recipe.json_schema import recipe_schema
    from rlm_plugins.registry import Registry

    text = json.dumps(recipe_schema(Registry(load or [])), indent=2, ensure_ascii=False)
    if out is None:
        typer.echo(text)
    else:
        out.write_text(text + "\n", encoding="utf-8")
        typer.echo(f"{out}: put `# yaml-language-server: $schema={out}` on the first line of a recipe")


@app.command()
def plugins(load: Load = None, as_json: AsJson = False) -> None:
    """List the plugins and their parts by recipe key. A broken plugin is shown with its traceback.

    JSON: a list of {name, origin, error, traceback, parts: {key: [{name, full_name, about}]}}.
    """
    from rlm_plugins.cli import plugins as listing
    from rlm_plugins.cli.plugins_report import render
    from rlm_plugins.registry import Registry

    found = listing.plugins(Registry(load or []))
    _show(found, render(found), as_json)


@app.command()
def algorithms(load: Load = None, as_json: AsJson = False) -> None:
    """Print the table: every algorithm a row, every symbol of the equation a column.

    As wide as the terminal, or COLUMNS. JSON: a list of {name, full_name, family, about, source, year, trainer, slots}.
    """
    from rlm_plugins.cli.algorithm_table import render, table
    from rlm_plugins.registry import Registry

    found = table(Registry(load or []))
    _show(found, render(found, _width()), as_json)


@app.command()
def explain(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="`clip`, `penalties/entropy`, `grpo`, `rlm_advantages`, `reward_std`, …"),
    ],
    load: Load = None,
    as_json: AsJson = False,
) -> None:
    """Explain a part, a row of the algorithm table, a hook, a recipe key or a logged number.

    JSON: a list of entries; `kind` is part, row, hook, key or metric.
    """
    from rlm_plugins.cli.explain import explain as entries_of
    from rlm_plugins.cli.explain_report import render
    from rlm_plugins.registry import Registry

    found = entries_of(name, Registry(load or []))
    _show(found, "\n\n\n".join(map(render, found)), as_json)


@app.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="ROW", help="A row of the algorithm table: `grpo`.")],
    after: Annotated[str, typer.Argument(metavar="ROW", help="Another one: `dapo`.")],
    load: Load = None,
    as_json: AsJson = False,
) -> None:
    """Compare two rows of the algorithm table: what changes, symbol by symbol, with values.

    JSON: {rows: [{name, about, objective, trainer}], changes: [{symbol, key, name, knob, before, after}],
    same: [{symbol, key, call}]}.
    """
    from rlm_plugins.cli.diff import diff as compare
    from rlm_plugins.cli.diff import render
    from rlm_plugins.registry import Registry

    found = compare(before, after, Registry(load or []))
    _show(found, render(found, _width()), as_json)


@app.command("eval")
def evaluate(
    source: Recipe,
    overrides: Overrides = None,
    rows: Annotated[int | None, typer.Option(min=0, help="Held-out problems at most; 0: all.")] = None,
    stage: Annotated[str | None, typer.Option(help="A stage by name (default: the last finished one).")] = None,
    samples: Annotated[int, typer.Option(min=0, help="Print this many answers.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Score a run (or the model a recipe starts from) on held-out problems, with its 95 % interval.

    JSON: {stage, model, metric, score, low, high, rows, rewards, samples}.
    """
    from rlm_plugins.cli.evaluate import as_data, render, trial

    chosen, report = trial(source, overrides or [], rows=rows, stage=stage)
    _show(as_data(chosen, report, samples), render(chosen, report, samples), as_json)


@rewards.command()
def probe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A reward: `accuracy`, `plugin/name`, a recipe's label.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Its knobs; with --recipe: values of the recipe said anew."),
    ] = None,
    recipe: Annotated[Path | None, typer.Option(help="Take knobs, rows and the other rewards from a recipe.")] = None,
    environment: Annotated[str, typer.Option(help="Where the rows come from, without a recipe.")] = "addition",
    answer: Annotated[str, typer.Option(help="The column with the right answers.")] = "answer",
    form: Annotated[list[str] | None, typer.Option(help="How an answer is written: `It is {answer}`. Several.")] = None,
    rows: Annotated[int, typer.Option(min=2, help="Rows at most.")] = 24,
    load: Load = None,
    as_json: AsJson = False,
) -> None:
    """Ask a reward about completions whose worth is known: right, empty, listed, endless, wrong, in another order.

    A report, not an alarm: the exit code is 0 whatever it finds. JSON: {reward, gold, traps, behaviour, agreement,
    findings, …}.
    """
    from rlm_plugins.cli.reward_probe import probe as look
    from rlm_plugins.cli.reward_probe_report import findings, render

    found = look(
        name,
        settings or [],
        recipe=recipe,
        environment=environment,
        answer=answer,
        forms=form or [],
        rows=rows,
        load=load or [],
    )
    _show({**found, "findings": findings(found)}, render(found), as_json)


@app.command()
def new(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="reward, advantage, policy_loss, penalty, environment, …")
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the part is called.")],
    folder: Annotated[Path, typer.Option(help="Where to make the package.")] = Path(),
) -> None:
    """Make a package with one working part and its tests, ready to be changed."""
    from rlm_plugins.cli import new as scaffold

    files = scaffold.create(kind, name, folder)
    package = os.path.commonpath(files)
    typer.echo("\n".join(map(str, files)))
    typer.echo(f"next: pip install -e {package}, pytest {package}, and make it yours")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"rlm {__version__}")
        raise typer.Exit


def _width() -> int:
    """Columns of the terminal; 120 where there is none."""
    return shutil.get_terminal_size((120, 24)).columns


def _show(data: Any, text: str, as_json: bool) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False, default=str) if as_json else text)
