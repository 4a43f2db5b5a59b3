"""Functions of the Python API: load, check, train, evaluate and explain, each in one call."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlm_plugins import recipe as recipes
from rlm_plugins.api.objects import add, constant, named_algorithm, named_entry
from rlm_plugins.api.results import Check, Explanation, Run, Table
from rlm_plugins.cli import algorithm_table, check_report, explain_report
from rlm_plugins.cli import explain as explanations
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.part_lookup import HOOK_OF
from rlm_plugins.registry import Registry
from rlm_plugins.specs import EnvironmentSpec, ModelSpec

RecipeLike = str | Path | Mapping[str, Any] | Recipe
Overrides = Mapping[str, Any] | Sequence[str]
RUNS = Path("runs")
OBJECTS = ("model", "tokenizer", "train_dataset", "test_dataset", "rewards", "algorithm")
"""Arguments of :func:`train` that stand for sections of a recipe."""


def load(recipe: RecipeLike, overrides: Overrides = ()) -> Recipe:
    """Load a recipe and check its structure; nothing heavy is imported.

    Args:
        recipe: A YAML file, or a mapping with the same keys.
        overrides: ``{"trainer.learning_rate": 1e-6}`` or ``["trainer.learning_rate=1e-6"]``.

    Raises:
        RecipeError: It names the address.

    >>> experiment = {"model": "scratch", "environment": "addition", "algorithm": "grpo"}
    >>> load(experiment, {"trainer.seed": 1}).bodies[0]["trainer"]
    {'seed': 1}
    """
    if isinstance(recipe, Recipe):
        return recipe
    said = _said(overrides)
    if isinstance(recipe, Mapping):
        return recipes.of_mapping(recipe, said)
    return recipes.load(recipe, said)


def check(recipe: RecipeLike, overrides: Overrides = (), **objects: Any) -> Check:
    """Check everything that a run needs, before any weight is loaded.

    Args:
        recipe: As :func:`load` takes it.
        overrides: As there.
        **objects: As :func:`train` takes them.

    Returns:
        Per stage what ``rlm check --json`` prints; shown as text in a terminal or notebook.

    Raises:
        RlmError: The first problem, with its place.
    """
    from rlm_plugins.cli.check import examine
    from rlm_plugins.recipe.compose import compose

    loaded, registry = _prepared(recipe, overrides, **objects)
    stages = [examine(stage, registry) for stage in compose(loaded, registry)]
    return Check(stages, "\n\n".join(map(check_report.render, stages)))


def train(recipe: RecipeLike, overrides: Overrides = (), *, out: str | Path | None = None, **objects: Any) -> Run:
    """Train a recipe and return its run.

    Args:
        recipe: A YAML file, or a mapping in which functions may stand for parts.
        overrides: As :func:`load` takes them.
        out: Folder of the run; default: ``runs/NAME``, or ``runs/NAME-2``, … if that exists.
        **objects: Python objects in the place of sections: ``model`` (an instance, with ``tokenizer``),
            ``train_dataset`` and ``test_dataset``, ``rewards`` (functions, names or mappings), ``algorithm``.

    Raises:
        RlmError: The first problem, with its place.
    """
    from rlm_plugins.run.folder import fresh_folder
    from rlm_plugins.run.train import train as run_training

    loaded, registry = _prepared(recipe, overrides, **objects)
    folder = fresh_folder(Path(out) if out is not None else RUNS / loaded.name)

    def again() -> None:
        again_loaded, again_registry = _prepared(recipe, overrides, **objects)
        run_training(again_loaded, again_registry, folder, resume=True)

    run_training(loaded, registry, folder)
    return Run(folder, again)


def evaluate(source: str | Path | Run, overrides: Overrides = (), *, rows: int | None = None) -> dict[str, Any]:
    """Evaluate a run, or the initial model of a recipe file, on held-out examples.

    Args:
        source: A run, its folder, or a recipe file.
        overrides: As :func:`load` takes them.
        rows: Maximum number of held-out examples; 0: all; None: as in the recipe.

    Returns:
        ``metric``, ``score`` with its interval ``low`` and ``high``, ``rows``, ``rewards``.
    """
    from rlm_plugins.cli.evaluate import as_data
    from rlm_plugins.cli.evaluate import evaluate as run_evaluation

    folder = source.folder if isinstance(source, Run) else Path(source)
    return as_data(run_evaluation(folder, _said(overrides), rows=rows), samples=0)


def algorithms() -> Table:
    """Return every algorithm, one entry each; shown as a table.

    >>> "dapo" in [row["name"] for row in algorithms()]
    True
    """
    entries = algorithm_table.table(_registry())
    return Table(entries, algorithm_table.render(entries, 140))


def explain(name: str) -> Explanation:
    """Explain a part, a knob, an algorithm, a recipe key, a metric or a field of TRL's config.

    >>> explain("grpo").entries[0]["kind"]
    'algorithm'
    """
    entries = explanations.explain(name, _registry())
    return Explanation(entries, "\n\n".join(map(explain_report.render, entries)))


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


def _said(overrides: Overrides) -> list[str]:
    """Return overrides as ``key=value``."""
    if isinstance(overrides, Mapping):
        return [f"{key}={json.dumps(value)}" for key, value in overrides.items()]
    return list(overrides)


@functools.cache
def _registry() -> Registry:
    return Registry()


def _prepared(recipe: RecipeLike, overrides: Overrides, **objects: Any) -> tuple[Recipe, Registry]:
    """Return a recipe with Python objects in the place of sections, and the registry that has them."""
    if unknown := sorted(
        set(objects) - {"model", "tokenizer", "train_dataset", "test_dataset", "rewards", "algorithm"}
    ):
        allowed = "model, tokenizer, train_dataset, test_dataset, rewards, algorithm"
        raise RlmError(f"unknown argument '{unknown[0]}'", allowed=allowed)
    if isinstance(recipe, Mapping):
        sections, registry = dict(recipe), Registry(load=(recipe.get("plugins") or {}).get("load", ()))
    else:
        loaded = load(recipe, overrides)
        registry = Registry(load=loaded.load, block=loaded.block)
        sections = {}
    given = _sections(registry, sections, objects)
    if isinstance(recipe, Mapping):
        return load(sections | given, overrides), registry
    for number, body in enumerate(loaded.bodies):
        body |= {key: value for key, value in given.items() if key != "model" or number == 0}
    return loaded, registry


def _sections(registry: Registry, sections: Mapping[str, Any], objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections that hold objects, with the names that the registry gives them."""
    given: dict[str, Any] = {}
    model = objects.get("model", sections.get("model"))
    if hasattr(model, "parameters"):
        given["model"] = {"name": add(registry, "model", _in_memory(model, objects.get("tokenizer")), "model")}
    elif "model" in objects:
        given["model"] = {"name": model} if isinstance(model, str) else model
    if "train_dataset" in objects:
        spec = EnvironmentSpec(train=objects["train_dataset"], test=objects.get("test_dataset", ()))
        given["environment"] = {"name": add(registry, "environment", constant(spec), "train_dataset")}
    if rewards := objects.get("rewards", sections.get("rewards")):
        entries = [named_entry(registry, "rewards", entry) for entry in rewards]
        given["rewards"] = [{"name": entry} if isinstance(entry, str) else entry for entry in entries]
        for entry in given["rewards"]:
            entry.setdefault("as", entry["name"].rpartition("/")[2].rpartition(":")[2])
    algorithm = objects.get("algorithm", sections.get("algorithm"))
    if algorithm is not None:
        given["algorithm"] = named_algorithm(registry, algorithm)
    return given


def _in_memory(model: Any, tokenizer: Any) -> Callable[[], ModelSpec]:
    if tokenizer is None:
        raise RlmError("`model` is an instance, so its `tokenizer` is required", where="train(model=…)")
    spec = ModelSpec(config=model.config, tokenizer=lambda: tokenizer, load=lambda: model, origin="given in Python")
    return constant(spec)
