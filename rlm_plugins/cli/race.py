"""``rlm race``: algorithms side by side on one frozen base, with the same prompts, a step each in turn."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from rlm_plugins.cli.recipe_argument import read
from rlm_plugins.durable.files import make_folder, write_file
from rlm_plugins.durable.json_lines import plain
from rlm_plugins.durable.stop_signals import current
from rlm_plugins.errors import RlmError
from rlm_plugins.race.shared_base import SharedBase
from rlm_plugins.race.standings import picture, standings
from rlm_plugins.race.turns import TurnPerStep, Turns
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.report.text_layout import columns
from rlm_plugins.run.folder import SUMMARY
from rlm_plugins.run.resume import check_resumable
from rlm_plugins.run.train import train
from rlm_plugins.stage import Stage

Racer = tuple[Recipe, Registry]


def race(
    algorithms: Sequence[str],
    recipe: Path,
    overrides: Sequence[str],
    seeds: int,
    out: Path,
    echo: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Train a recipe with each algorithm in one process; a repeated race resumes what is unfinished.

    Args:
        algorithms: Names; differences are from the first one.
        recipe: A recipe of one stage with an adapter. Its section `algorithm` is that of the algorithm it names; the
            others are as published.
        overrides: ``key=value``.
        seeds: Number of seeds, from 1.
        out: Folder of the race; each algorithm and seed has a run in it.
        echo: Called with a line for each run that ends.

    Returns:
        The standings (:func:`rlm_plugins.race.standings.standings`); `out` has them as ``race.json`` and ``race.png``.

    Raises:
        RlmError: A recipe is invalid (nothing is trained then), or a run failed.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RlmError("`rlm race` runs in one process", where="rlm race", hint="start it without `accelerate launch`")
    if duplicates := sorted({name for name in algorithms if algorithms.count(name) > 1}):
        raise RlmError(f"the algorithm '{duplicates[0]}' is named twice", where="rlm race")
    folders = {name: _folders(out, name, seeds) for name in algorithms}
    racers: dict[Path, Racer] = {}
    (body, *later) = read(recipe, overrides)[0].bodies
    if later:
        hint = "train the earlier stages first, and race from their result: `model=runs/NAME/01-sft/model`"
        raise RlmError("`rlm race` takes a recipe of one stage", where=str(recipe), hint=hint)
    for name, run_folders in folders.items():
        for seed, folder in enumerate(run_folders, 1):
            override = [] if name == body["algorithm"]["name"] else [f"algorithm={name}"]
            racers[folder] = _racer(recipe, [*overrides, *override, f"trainer.seed={seed}"])
            if (folder / "recipe.yaml").is_file():
                check_resumable(folder, *racers[folder])
    make_folder(out)
    _run({folder: racer for folder, racer in racers.items() if not (folder / SUMMARY).is_file()}, echo)
    rows = standings(folders)
    write_file(out / "race.json", json.dumps(plain(rows), indent=2) + "\n")
    picture(folders, out / "race.png")
    return rows


def split_words(words: Sequence[str]) -> tuple[list[str], Path, list[str]]:
    """Return the algorithms, the recipe and the overrides among the words of the command.

    >>> split_words(["grpo", "dapo", "recipe.yaml", "trainer.max_steps=20"])
    (['grpo', 'dapo'], PosixPath('recipe.yaml'), ['trainer.max_steps=20'])

    Raises:
        RlmError: There is no recipe, or not one.
    """
    overrides = [word for word in words if "=" in word]
    recipes = [word for word in words if "=" not in word and word.endswith((".yaml", ".yml"))]
    algorithms = [word for word in words if word not in (*overrides, *recipes)]
    if len(recipes) != 1 or not algorithms:
        problem = f"expected algorithms and one recipe, got {len(algorithms)} and {len(recipes)}"
        raise RlmError(problem, where="rlm race", hint="`rlm race grpo dapo recipe.yaml trainer.max_steps=20`")
    return algorithms, Path(recipes[0]), overrides


def _folders(out: Path, algorithm: str, seeds: int) -> list[Path]:
    """Return the folders of an algorithm's runs, one per seed."""
    name = algorithm.replace("/", "-")
    return [out / f"{name}-seed{seed}" for seed in range(1, seeds + 1)] if seeds > 1 else [out / name]


def _racer(path: Path, overrides: Sequence[str]) -> Racer:
    """Return a recipe and its registry.

    Raises:
        RlmError: The recipe is invalid, trains no adapter, or has a second process that generates.
    """
    recipe, registry = read(path, overrides)
    (stage,) = compose(recipe, registry, build_environment=False)
    if stage.lora is None:
        hint = "`model.lora={r: 16, target_modules: all-linear}`"
        raise RlmError("`rlm race` requires an adapter: the base is shared and frozen", where=str(path), hint=hint)
    if stage.settings.get("generation_device"):
        problem = "`rlm race` takes turns in one process, and `generation_device` would add one for each run"
        raise RlmError(problem, where=str(path), hint="`trainer.generation_device=null`")
    return recipe, registry


def _run(racers: Mapping[Path, Racer], echo: Callable[[str], None]) -> None:
    """Train all runs in turns.

    Raises:
        RlmError: Of the first run that failed; the others are complete.
        Interrupted: A signal arrived; every run is saved.
    """
    base = SharedBase()

    def task(folder: Path, recipe: Recipe, registry: Registry) -> None:
        def prepare(stages: Sequence[Stage]) -> None:
            stages[0].source = base.source(stages[0].source)
            stages[0].race_callbacks = [TurnPerStep(turns, str(folder))]

        resume = (folder / "recipe.yaml").is_file()
        train(recipe, registry, folder, resume=resume, console=Console(quiet=True), prepare=prepare)
        echo(f"{folder.name}: complete")

    turns = Turns({str(folder): partial(task, folder, *racer) for folder, racer in racers.items()})
    with current() as signals:
        signals.command = "the same command"
        turns.run()
    for name, error in turns.errors.items():
        if isinstance(error, RlmError):
            hint = f"{error.hint}; " if error.hint else ""
            hint += "the other runs are complete, the same command continues this one"
            raise RlmError(error.problem, where=f"{name}: {error.where}", allowed=error.allowed, hint=hint) from error
        raise error


def render(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the standings as a table."""
    first = rows[0]["algorithm"]
    lines: list[Sequence[str]] = [
        ("algorithm", "before", "after", "95 % interval", f"difference from {first}", "reward", "s/step")
    ]
    for entry in rows:
        interval = "" if entry["interval"] is None else "[{:.3f}, {:.3f}]".format(*entry["interval"])
        change = "–"
        if entry["difference"] is not None:
            change = f"{entry['difference']:+.3f} [{entry['low']:+.3f}, {entry['high']:+.3f}]"
        numbers = [_number(entry[name]) for name in ("before", "after", "reward", "seconds")]
        lines.append((entry["algorithm"], *numbers[:2], interval, change, *numbers[2:]))
    return columns(lines, indent="")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
