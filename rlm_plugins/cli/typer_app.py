"""``rlm``: train, check, signal, show, schema, plugins, algorithms, explain, diff, eval, reward probe, new, ….

Each command declares its arguments and calls the module that does the work. That module is imported inside the command,
so that ``rlm --help`` imports neither torch nor TRL.
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
from rlm_plugins.cli.error_report import DEBUG, ErrorReportingGroup, run_to_end
from rlm_plugins.entry_points import tolerate_damage
from rlm_plugins.errors import RlmError

app = typer.Typer(
    cls=ErrorReportingGroup,
    name="rlm",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

rewards = typer.Typer(no_args_is_help=True)
app.add_typer(rewards, name="reward", help="Test a reward function before training with it.")

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


def main() -> None:
    """Run the command ``rlm``."""
    if os.environ.get("RLM_DEBUG") != "1":
        warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot encode Â must not end a run
    tolerate_damage()
    run_to_end(app)


@app.callback()
def rlm(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Print full tracebacks (or set RLM_DEBUG=1).")] = False,
) -> None:
    """Every symbol of the reinforcement-learning equation for reasoning models is a plugin."""
    if debug:
        os.environ["RLM_DEBUG"] = "1"


@app.command()
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
    from rlm_plugins.durable.stop_signals import Interrupted, current

    try:
        with current():
            from rlm_plugins.cli.recipe_argument import read
            from rlm_plugins.recipe.compose import check_names

            check_names(
                *read(recipe, overrides, allow_changed or ())
            )  # a typing error is reported before torch is imported
            from rlm_plugins.cli.launch import launch

            launch(recipe, overrides or [], name=name, out=out, resume=resume, allow_changed=allow_changed or ())
    except Interrupted as stop:
        typer.echo(f"stopped by {stop}" + (f"; resume with: {stop.resume}" if stop.resume else ""), err=True)
        raise typer.Exit(stop.exit_code) from None
    except KeyboardInterrupt:  # raised by other code
        typer.echo("interrupted: run the same command with --resume to continue from the last checkpoint", err=True)
        raise typer.Exit(130) from None


@app.command()
def check(recipe: Recipe, overrides: Overrides = None, as_json: AsJson = False, trust: Trust = False) -> None:
    """Check everything a run needs without loading weights: code, parts, data, batch, objective, speed, memory.

    JSON: a list of stages, each with name, code, parts, data, batch, objective, legend, speed, memory, warnings.
    """
    from rlm_plugins.cli.recipe_argument import read
    from rlm_plugins.recipe.compose import compose, located

    parsed, registry = read(recipe, overrides)
    composed = compose(parsed, registry)  # names and knobs are checked before torch is imported
    from rlm_plugins.cli.check import examine
    from rlm_plugins.cli.check_report import render
    from rlm_plugins.cli.trust import code_of, report

    stages, code = [], code_of(parsed)
    for stage, place in zip(composed, parsed.places, strict=True):
        with located(parsed, place):
            stages.append({**examine(stage, registry), "code": [vars(each) for each in code]})
    _show(stages, "\n\n\n".join([report(code), *map(render, stages)]) + "\n\nok", as_json)


@app.command()
def show(recipe: Recipe, overrides: Overrides = None, as_json: AsJson = False, trust: Trust = False) -> None:
    """Print the resolved recipe: every knob of every part, and the origin of each value.

    JSON: a list of {path, value, origin}.
    """
    from rlm_plugins.cli.recipe_argument import read
    from rlm_plugins.cli.text_layout import columns
    from rlm_plugins.recipe.compose import compose, explain_origins

    parsed, registry = read(recipe, overrides)
    values = explain_origins(parsed, compose(parsed, registry, build_environment=False))
    data = [{"path": path, "value": value, "origin": origin} for path, value, origin in values]
    lines = columns(((p, json.dumps(v, ensure_ascii=False), origin) for p, v, origin in values), indent="")
    _show(data, lines, as_json)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Print machine, versions against the tested range, plugins, sandbox, disk and problems, to paste into a report.

    JSON: {system, versions: [{name, installed, tested, problem}], plugins: [{name, origin, state, problem}], sandbox,
    disk: [{path, free_gib, problem}], problems}.
    """
    from rlm_plugins.cli.doctor import doctor as examine
    from rlm_plugins.cli.doctor import render

    data = examine()
    _show(data, render(data), as_json)


@app.command("resume-check")
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
    from rlm_plugins.cli.resume_check import render
    from rlm_plugins.cli.resume_check import resume_check as check_resume

    results = check_resume(recipe, overrides or [], at or ())
    _show(results, render(results), as_json)
    if not all(result["equal"] for result in results):
        raise typer.Exit(1)


@app.command()
def schema(
    out: Annotated[Path | None, typer.Option(help="Output file (default: standard output).")] = None,
    load: Load = None,
) -> None:
    """Print the JSON Schema of recipes for editor completion, with all installed parts.

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
def plugins(
    load: Load = None,
    as_json: AsJson = False,
    disable: Annotated[str | None, typer.Option(metavar="NAME", help="Leave a plugin out from now on.")] = None,
    enable: Annotated[str | None, typer.Option(metavar="NAME", help="Use a disabled plugin again.")] = None,
) -> None:
    """List the plugins and their parts by recipe key. A broken plugin is listed with its traceback.

    JSON: a list of {name, origin, error, warning, traceback, parts: {key: [{name, full_name, about}]}}.
    """
    from rlm_plugins.registry.disabled import disabled, set_disabled

    for name, off in ((disable, True), (enable, False)):
        if name is not None:
            set_disabled(name, disable=off)
            typer.echo(f"disabled: {', '.join(sorted(disabled())) or 'none'}")
    if disable is not None or enable is not None:
        return
    from rlm_plugins.cli.plugins import plugins as list_plugins
    from rlm_plugins.cli.plugins_report import render
    from rlm_plugins.registry import Registry

    data = list_plugins(Registry(load or []))
    _show(data, render(data), as_json)


@app.command()
def algorithms(load: Load = None, as_json: AsJson = False) -> None:
    """Print the table of algorithms, with one column per symbol of the equation.

    The table is as wide as the terminal, or COLUMNS. JSON: a list of {name, full_name, family, about, source, year,
    trainer, slots}.
    """
    from rlm_plugins.cli.algorithm_table import render, table
    from rlm_plugins.registry import Registry

    data = table(Registry(load or []))
    _show(data, render(data, _width()), as_json)


@app.command()
def explain(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="`clip`, `grpo`, `advantage`, `reward_std`, `learning_rate`, `kl_coef`, …"),
    ],
    load: Load = None,
    as_json: AsJson = False,
) -> None:
    """Explain a part, knob, algorithm, hook, recipe key, batch field, metric, trainer setting or term of the field.

    JSON: a list of entries; `kind` is part, algorithm, hook, key, batch, knob, metric, setting or term.
    """
    from rlm_plugins.cli.explain import explain as entries_of
    from rlm_plugins.cli.explain_report import render
    from rlm_plugins.registry import Registry

    data = entries_of(name, Registry(load or []))
    _show(data, "\n\n\n".join(map(render, data)), as_json)


@app.command()
def diff(
    before: Annotated[str, typer.Argument(metavar="ALGORITHM", help="An algorithm: `grpo`.")],
    after: Annotated[str, typer.Argument(metavar="ALGORITHM", help="Another algorithm: `dapo`.")],
    load: Load = None,
    as_json: AsJson = False,
) -> None:
    """Compare two algorithms symbol by symbol.

    JSON: {algorithms: [{name, about, objective, trainer}], changes: [{symbol, key, name, knob, before, after}],
    same: [{symbol, key, call}]}.
    """
    from rlm_plugins.cli.diff import diff as compare
    from rlm_plugins.cli.diff import render
    from rlm_plugins.registry import Registry

    data = compare(before, after, Registry(load or []))
    _show(data, render(data, _width()), as_json)


@app.command("eval")
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
    from rlm_plugins.cli.evaluate import as_data, render
    from rlm_plugins.cli.evaluate import evaluate as run_evaluation

    judged = run_evaluation(source, overrides or [], rows=rows, stage=stage, k=k, on=on or [])
    _show(as_data(judged, samples), render(judged, samples), as_json)


@app.command()
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
    _show(data, render(data), as_json)


@app.command()
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
    folders = run_sweep(recipe, overrides or [], seeds, folder, typer.echo, trust=trust)
    typer.echo(render(compare_runs(folders)))


@app.command()
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
    data = run_race(algorithms, recipe, overrides, seeds, folder, lambda line: typer.echo(line, err=True))
    _show(data, render(data), as_json)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    to: Annotated[str, typer.Option(metavar="TARGET", help="A new folder, or hub:OWNER/NAME.")],
    merge: Annotated[bool, typer.Option("--merge", help="Merge the adapter into its base.")] = False,
    stage: Annotated[str | None, typer.Option(help="A stage by name (default: the last finished one).")] = None,
) -> None:
    """Write the model of a run with its model card, for transformers and PEFT without this project."""
    from rlm_plugins.cli.export import export as write

    typer.echo(f"exported: {write(run, to, merge=merge, stage=stage)}")


@app.command()
def sample(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="A run, a recipe, an adapter, a model or a hub name.")
    ],
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="Text (default: a chat loop).")] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of completions.")] = 1,
    temperature: Annotated[float, typer.Option(min=0, help="Sampling temperature; 0: greedy.")] = 1.0,
    max_new_tokens: Annotated[int, typer.Option(min=0, help="Longest completion; 0: as in training.")] = 0,
    stage: Annotated[str | None, typer.Option(help="A stage by name (default: the last finished one).")] = None,
) -> None:
    """Sample completions from the model of a run; without PROMPT, chat until the input ends."""
    from rlm_plugins.cli.sample import Sampler, chat

    sampler = Sampler(source, stage)
    if prompt is None:
        prefix = "> " if sys.stdin.isatty() else ""
        for answer in chat(sampler, lambda: input(prefix), temperature=temperature, max_new_tokens=max_new_tokens):
            typer.echo(answer)
    else:
        typer.echo("\n".join(sampler.complete(prompt, count, temperature, max_new_tokens)))


@app.command()
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
    _show(report, render(run, report), as_json)


@app.command()
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
    try:
        from rlm_view import command
    except ModuleNotFoundError as error:
        raise RlmError("`rlm view` requires the package rlm-view", hint="pip install rlm-view") from error

    if live:
        command.view_live(runs, _width(), typer.echo)
    else:
        typer.echo(f"written: {command.view(runs, out, lambda line: typer.echo(line, err=True))}")


@app.command()
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
    from rlm_plugins.cli.replay import render, report

    numbers = [text for text in changes or [] if text.isdigit()]
    overrides = [text for text in changes or [] if not text.isdigit()]
    if len(numbers) > 1:
        raise RlmError(f"expected one step, got {', '.join(numbers)}", hint="`rlm replay runs/demo 40`")
    data = report(run, int(numbers[0]) if numbers else None, overrides, with_model=with_model)
    _show(data, render(data), as_json)


@app.command()
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
    from rlm_plugins.recipe.compose import check_names

    check_names(*read(recipe, overrides))  # a typing error is reported before torch is imported
    from rlm_plugins.cli.signal_report import render
    from rlm_plugins.cli.signal_report import signal as measure

    data = measure(recipe, overrides or [], prompts=prompts, stage=stage)
    _show(data, render(data), as_json)


@rewards.command()
def probe(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A reward: `accuracy`, `plugin/name`, or its label in the recipe.")
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Knobs of the reward; with --recipe: overrides of the recipe."),
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(help="Recipe that supplies knobs, examples and the other rewards.")
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
    from rlm_plugins.cli.reward_probe import probe as run_probe
    from rlm_plugins.cli.reward_probe_report import findings, render

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
    _show({**data, "findings": findings(data)}, render(data), as_json)


@rewards.command()
def audit(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A reward: `math_accuracy`, or `plugin/name`.")],
    settings: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Knobs of the reward.")] = None,
    cases: Annotated[
        str, typer.Option(help="Cases: `mathematics`, `numbers`, … or `file.py:FAMILY` (default: the reward's own).")
    ] = "",
    number: Annotated[int, typer.Option(min=1, help="Number of generated cases, over all classes.")] = 2000,
    seed: Annotated[int, typer.Option(help="Seed of the cases.")] = 0,
    form: Annotated[str, typer.Option(help="Text around an answer: `It is {answer}`.")] = "",
    accepted: Annotated[float, typer.Option(help="A score above this number pays the answer.")] = 0.5,
    beside: Annotated[list[str] | None, typer.Option(help="Another library on the same cases, or `all`.")] = None,
    only: Annotated[list[str] | None, typer.Option("--class", help="A class of cases; repeatable.")] = None,
    load: Load = None,
    as_json: AsJson = False,
) -> None:
    """Score thousands of generated answers that are right or wrong by construction (package rlm-audit).

    The exit code is 0 whatever the report finds. JSON: {reward, family, seed, cases, slowest, classes, totals}.
    """
    try:
        from rlm_audit import command
    except ModuleNotFoundError as error:
        raise RlmError("`rlm reward audit` requires the package rlm-audit", hint="pip install rlm-audit") from error

    options: dict[str, Any] = {"cases": cases, "number": number, "seed": seed, "form": form, "accepted": accepted}
    lists: dict[str, Any] = {"beside": beside or [], "classes": only or [], "load": load or []}
    data = command.audit(name, settings or [], **options, **lists)
    _show(data, command.render(data), as_json)


@app.command()
def new(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="reward, advantage, policy_loss, penalty, environment, …")
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the part.")],
    folder: Annotated[Path, typer.Option(help="Parent folder of the package.")] = Path(),
) -> None:
    """Create a package with one working part and its tests, ready to edit."""
    from rlm_plugins.cli import new as scaffold

    files = scaffold.create(kind, name, folder)
    package = os.path.commonpath(files)
    typer.echo("\n".join(map(str, files)))
    typer.echo(f"next: pip install -e {package}, pytest {package}, then edit the part")


def _version(requested: bool) -> None:
    if requested:
        typer.echo(f"rlm {__version__}")
        raise typer.Exit


def _width() -> int:
    """Return the columns of the terminal; 120 if there is none."""
    return shutil.get_terminal_size((120, 24)).columns


def _show(data: Any, text: str, as_json: bool) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False, default=str) if as_json else text)
