"""Functions of the Python API: load, check, train, evaluate and explain, each in one call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlm_plugins.api.recipe_arguments import Overrides, RecipeLike, override_texts, prepared
from rlm_plugins.api.results import Check, Explanation, Run, Table
from rlm_plugins.errors import RlmError
from rlm_plugins.lazy import optional_module
from rlm_plugins.recipe.part_lookup import HOOK_OF
from rlm_plugins.registry import Registry

RUNS = Path("runs")


def check(recipe: RecipeLike, overrides: Overrides = (), **objects: Any) -> Check:
    """Check everything that a run needs, before any weight is loaded.

    Args:
        recipe: As :func:`rlm_plugins.load` takes it.
        overrides: As there.
        **objects: As :func:`train` takes them.

    Returns:
        Per stage what ``rlm check --json`` prints; shown as text in a terminal or notebook.

    Raises:
        RlmError: The first problem, with its place.
    """
    from rlm_plugins.recipe.compose import compose
    from rlm_plugins.report.check_report import examine, render

    loaded, registry = prepared(recipe, overrides, **objects)
    stages = [examine(stage, registry) for stage in compose(loaded, registry)]
    return Check(stages, "\n\n".join(map(render, stages)))


def train(recipe: RecipeLike, overrides: Overrides = (), *, out: str | Path | None = None, **objects: Any) -> Run:
    """Train a recipe and return its run.

    Args:
        recipe: A YAML file, or a mapping in which functions may stand for parts.
        overrides: As :func:`rlm_plugins.load` takes them.
        out: Folder of the run; default: ``runs/NAME``, or ``runs/NAME-2``, … if that exists.
        **objects: Python objects in the place of sections: ``model`` (an instance, with ``tokenizer``),
            ``train_dataset`` and ``test_dataset``, ``rewards`` (functions, names or mappings), ``algorithm``.

    Raises:
        RlmError: The first problem, with its place.
    """
    from rlm_plugins.run.choose_folder import fresh_folder
    from rlm_plugins.run.train import train as run_training

    loaded, registry = prepared(recipe, overrides, **objects)
    folder = fresh_folder(Path(out) if out is not None else RUNS / loaded.name)
    run_training(loaded, registry, folder)
    return Run(folder, lambda more: prepared(recipe, [*override_texts(overrides), *more], **objects))


def evaluate(source: str | Path | Run, overrides: Overrides = (), *, rows: int | None = None) -> dict[str, Any]:
    """Evaluate a run, or the initial model of a recipe file, on held-out examples.

    Args:
        source: A run, its folder, or a recipe file.
        overrides: As :func:`rlm_plugins.load` takes them.
        rows: Maximum number of held-out examples; 0: all; None: as in the recipe.

    Returns:
        ``metric``, ``score`` with its interval ``low`` and ``high``, ``rows``, ``rewards``.
    """
    from rlm_plugins.cli.evaluate import evaluate as run_evaluation
    from rlm_plugins.cli.judgement_text import as_data

    folder, prepare = (source.folder, source.prepare) if isinstance(source, Run) else (Path(source), None)
    return as_data(run_evaluation(folder, override_texts(overrides), rows=rows, prepare=prepare), samples=0)


def algorithms() -> Table:
    """Return every algorithm, one entry each; shown as a table.

    >>> "dapo" in [row["name"] for row in algorithms()]
    True
    """
    lab = optional_module("rlm_lab.algorithms", "the table of algorithms")
    entries = lab.table(_registry())
    return Table(entries, lab.render(entries, 140))


def explain(name: str) -> Explanation:
    """Explain a part, a knob, an algorithm, a recipe key, a metric or a field of TRL's config.

    >>> explain("grpo").entries[0]["kind"]
    'algorithm'
    """
    entries = optional_module("rlm_lab.explain", "an explanation").explain(name, _registry())
    return Explanation(
        entries, "\n\n".join(map(optional_module("rlm_lab.explain_text", "an explanation").render, entries))
    )


def part(slot: str, name: str, **knobs: Any) -> Callable[..., Any]:
    """Return a part as a plain function with its knobs bound: tensors in, tensors out.

    >>> import torch
    >>> group_mean = part("advantage", "group_relative", scale="none")
    >>> group_mean(rewards=torch.tensor([1.0, 0.0]), group=torch.tensor([0, 0])).tolist()
    [0.5, -0.5]
    """
    if slot not in HOOK_OF:
        raise RlmError(f"unknown slot '{slot}'", allowed=", ".join(HOOK_OF))
    bound = _registry().find(HOOK_OF[slot], name, where=slot).bind(knobs, where=f"{slot}: {name}")
    if bound.stateful:
        return bound.target
    return functools.wraps(bound.target)(functools.partial(bound.target, **bound.knobs))


@functools.cache
def _registry() -> Registry:
    return Registry()
