"""The commands ``rlm explain`` and ``rlm lesson``: a name, the bias of its gradient, exercises."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rlm_plugins.cli.output import echo
from rlm_plugins.cli.typer_app import AsJson, Load, Trust, print_result, terminal_width
from rlm_plugins.errors import RlmError

if TYPE_CHECKING:
    from rlm_plugins.equation.equation import Equation
    from rlm_plugins.registry import Registry


def explain(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="`grpo`, `clip`, `advantage`, `reward_std`, `learning_rate`, …"),
    ] = None,
    schema: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the JSON Schema of recipes, for an editor; `-` prints it."),
    ] = None,
    bias: Annotated[
        bool,
        typer.Option("--bias", help="Measure each algorithm, part or recipe's algorithm against the exact gradient."),
    ] = False,
    group_size: Annotated[
        int | None, typer.Option("--group", min=2, max=8, help="With --bias: completions per group (default: 4).")
    ] = None,
    load: Load = None,
    as_json: AsJson = False,
    trust: Trust = False,
) -> None:
    """Explain a part, knob, metric, finding or setting; compare two algorithms.

    Without a name it lists the names of all parts. `rlm explain algorithms` prints the table of algorithms, a column
    per symbol; `rlm explain plugins` the installed packages with their parts; `rlm explain grpo dapo` what differs;
    `rlm explain skill` a SKILL.md for coding agents. The policy of --bias has seven completions, so every expectation
    is a sum without sampling noise.

    JSON: a list of entries; `kind` is part, algorithm, hook, key, batch, knob, metric, finding, setting or
    term. Of two algorithms: {algorithms, changes, same}. Without a name: {key: [name]}. With --bias: {name: {value,
    group_size, gradients: [{samples, scale, bias, std}], advantages: [[completion, probability, reward, exact, mean]],
    penalties: [{part, mean, kl, scale, bias}], parts}}.
    """
    from rlm_plugins.registry import Registry

    registry = Registry(load or [])
    if bias:
        from rlm_lab.oracle import measured, render

        if not names or schema is not None:
            raise RlmError("`--bias` measures algorithms and parts by name", hint="`rlm explain grpo --bias`")
        tables = {name: measured(name, _equation(name, registry), group_size or 4) for name in names}
        complete = [x for x in names if "." in x or registry.offers("rlm_algorithms", x)]
        titles = [x if x in complete else f"{x} in `reinforce`" for x in tables]
        print_result(tables, "\n\n".join(map(render, tables.values(), titles)), as_json)
        return
    if group_size is not None:
        raise RlmError("`--group` is the size of a group of `--bias`", hint="`rlm explain grpo --bias --group 8`")
    if schema is None:
        print_result(*explanation(names or [], registry, terminal_width()), as_json)
        return
    from rlm_lab.schema import recipe_schema
    from rlm_plugins.durable.files import whole

    text = json.dumps(recipe_schema(registry), indent=2, ensure_ascii=False)
    if str(schema) == "-":
        echo(text)
    else:
        with whole(schema) as staged:
            staged.write_text(text + "\n", encoding="utf-8")
        echo(f"{schema}: put `# yaml-language-server: $schema={schema}` on the first line of a recipe")


def _equation(name: str, registry: Registry) -> Equation:
    """Return the equation of an algorithm, of a part, or of the first stage of a recipe that has one."""
    from rlm_lab.oracle import equation_of

    if not name.endswith((".yaml", ".yml")):
        return equation_of(name, registry)
    from rlm_plugins.recipe.compose import compose
    from rlm_plugins.run.recipe_argument import read

    equations = [stage.equation for stage in compose(*read(Path(name), [])) if stage.equation is not None]
    if not equations:
        raise RlmError(f"no stage of {name} has an equation", hint="`rlm explain grpo --bias` measures an algorithm")
    return equations[0]


def explanation(names: Sequence[str], registry: Registry, width: int) -> tuple[Any, str]:
    """Return what `rlm explain` prints for some names, as data and as text of at most `width` columns if words allow.

    Raises:
        RlmError: A name is unknown.
    """
    from rlm_lab import algorithms, plugin_list

    if not names:
        index = plugin_list.index(registry)
        return index, plugin_list.render_index(index, width)
    if list(names) == ["algorithms"]:
        table = algorithms.table(registry)
        return table, algorithms.render(table, width)
    if list(names) == ["plugins"]:
        plugins = plugin_list.plugins(registry)
        return plugins, plugin_list.render(plugins)
    if list(names) == ["skill"]:
        text = plugin_list.skill(registry)
        return text, text
    if len(names) == 2 and all(registry.offers("rlm_algorithms", name) for name in names):
        comparison = algorithms.diff(names[0], names[1], registry)
        return comparison, algorithms.render_diff(comparison, width)
    from rlm_lab.explain import explain as entries_of
    from rlm_lab.explain_text import render

    entries = [entry for name in names for entry in entries_of(name, registry)]
    return entries, "\n\n\n".join(map(render, entries))


def lesson(
    number: Annotated[int | None, typer.Argument(metavar="[LESSON]", help="Its number; without one: the list.")] = None,
    check: Annotated[Path | None, typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Grade it.")] = None,
    write: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a file to begin with.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a part for a symbol of the equation, and have it graded.

    Grading names the law that the part violates, with the smallest batch, what was expected and what it returned; the
    exit code is then 1. It requires rlm-testing.

    JSON: {title, hook, data, task, …}, without a number a list of them; with --check {lesson, part, laws: {name: report
    or null}, oracle: [{scale, bias, …} of the reference, of the part]}.
    """
    from rlm_lab import lessons

    if (check or write) and (number is None or (check and write)):
        raise RlmError("expected a lesson's number and one of --check and --write", hint="`rlm lesson 2 --check my.py`")
    if number is None:
        titles = "\n".join(f"{n}. {found['title']}" for n, found in enumerate(lessons.LESSONS, 1))
        print_result(lessons.LESSONS, titles, as_json)
    elif check:
        result = lessons.grade(number, check)
        print_result(result, lessons.render_grade(result), as_json)
        raise typer.Exit(int(any(result["laws"].values())))
    elif write:
        if write.exists():
            raise RlmError("the file exists", where=str(write), hint="name another one")
        from rlm_plugins.durable.files import write_file

        write_file(write, lessons.starter(number))
        echo(f"{write}: edit it, then `rlm lesson {number} --check {write}`")
    else:
        print_result(lessons.lesson(number), lessons.render(number), as_json)
