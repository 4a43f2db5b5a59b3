"""Commands that explain: ``rlm explain``, ``rlm algorithms``, ``rlm diff`` and ``rlm schema``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from rlm_plugins.cli.output import echo
from rlm_plugins.cli.typer_app import AsJson, Load, print_result, terminal_width


def algorithms(load: Load = None, as_json: AsJson = False) -> None:
    """Print the table of algorithms, with one column per symbol of the equation.

    The table is as wide as the terminal, or COLUMNS. JSON: a list of {name, full_name, family, about, source, year,
    trainer, slots}.
    """
    from rlm_lab.algorithms import render, table
    from rlm_plugins.registry import Registry

    data = table(Registry(load or []))
    print_result(data, render(data, terminal_width()), as_json)


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
    from rlm_lab.explain import explain as entries_of
    from rlm_lab.explain_text import render
    from rlm_plugins.registry import Registry

    data = entries_of(name, Registry(load or []))
    print_result(data, "\n\n\n".join(map(render, data)), as_json)


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
    from rlm_lab.algorithms import diff as compare
    from rlm_lab.algorithms import render_diff
    from rlm_plugins.registry import Registry

    data = compare(before, after, Registry(load or []))
    print_result(data, render_diff(data, terminal_width()), as_json)


def schema(
    out: Annotated[Path | None, typer.Option(help="Output file (default: standard output).")] = None,
    load: Load = None,
) -> None:
    """Print the JSON Schema of recipes for editor completion, with all installed parts.

    In VS Code (YAML extension): first line of a recipe `# yaml-language-server: $schema=recipe.schema.json`.
    """
    from rlm_lab.schema import recipe_schema
    from rlm_plugins.durable.files import whole
    from rlm_plugins.registry import Registry

    text = json.dumps(recipe_schema(Registry(load or [])), indent=2, ensure_ascii=False)
    if out is None:
        echo(text)
    else:
        with whole(out) as staged:
            staged.write_text(text + "\n", encoding="utf-8")
        echo(f"{out}: put `# yaml-language-server: $schema={out}` on the first line of a recipe")


COMMANDS: dict[str, Callable[..., None]] = {
    "explain": explain,
    "diff": diff,
    "algorithms": algorithms,
    "schema": schema,
}
for _command in COMMANDS.values():
    _command.panel = "Extend"  # type: ignore
