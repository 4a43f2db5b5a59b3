"""``rlm sweep --race``: algorithms side by side on one frozen base, with the same prompts, a step each in turn."""

from __future__ import annotations

import copy
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from accelerate.state import GradientState
from rich.console import Console
from transformers import TrainerCallback

from rlm_lab.standings import picture, standings
from rlm_lab.sweep import values_of
from rlm_plugins.durable.files import make_folder, plain, write_file
from rlm_plugins.durable.stop_signals import Interrupted, current
from rlm_plugins.equation.rng_state import rng_state, set_rng_state
from rlm_plugins.errors import TRAIN_ADAPTER, RlmError
from rlm_plugins.recipe import Recipe
from rlm_plugins.recipe.compose import compose
from rlm_plugins.registry import Registry
from rlm_plugins.run.folder import SUMMARY
from rlm_plugins.run.manifest import check_resumable
from rlm_plugins.run.recipe_argument import read
from rlm_plugins.run.train import train
from rlm_plugins.specs import ModelSpec
from rlm_plugins.stage import Stage

Racer = tuple[Recipe, Registry]


class SharedBase:
    """Base that is loaded once, and a model per policy that shares its weights.

    Adapters are added to the modules, which each policy has for itself, so the policies are independent.
    """

    def __init__(self) -> None:
        self._model: Any = None

    def source(self, source: ModelSpec) -> ModelSpec:
        """Return the source of a policy on the shared base.

        Args:
            source: The source of the base; the first one is loaded.
        """

        def load() -> Any:
            if self._model is None:
                self._model = source.load().requires_grad_(False)
            return with_shared_weights(self._model)

        return replace(source, load=load)


def with_shared_weights(model: Any) -> Any:
    """Return a copy of a model whose parameters are those of the model itself.

    >>> import torch
    >>> first = torch.nn.Linear(2, 2)
    >>> second = with_shared_weights(first)
    >>> second is first, second.weight is first.weight
    (False, True)
    """
    return copy.deepcopy(model, {id(x): x for x in model.parameters()})


def process_state() -> Callable[[], None]:
    """Return a function that restores what a trainer changes: random numbers, gradient accumulation."""
    rng, gradient = rng_state(), dict(GradientState._shared_state)

    def restore() -> None:
        set_rng_state(rng)
        GradientState._shared_state.clear()
        GradientState._shared_state.update(gradient)

    return restore


class Turns:
    """Tasks in threads, of which one runs at a time; `pass_on` ends the turn of a task.

    Args:
        tasks: Name → task.

    Attributes:
        errors: Name → exception that ended a task.
    """

    def __init__(self, tasks: Mapping[str, Callable[[], object]]) -> None:
        self.errors: dict[str, BaseException] = {}
        self._tasks, self._waiting = tasks, list(tasks)
        self._changed = threading.Condition()
        self._stopped_by: Interrupted | None = None

    def run(self) -> None:
        """Run all tasks to their end, one turn after the other.

        Raises:
            Interrupted: A signal arrived; every task has ended.
        """
        restore = process_state()  # each task begins with the same random numbers
        threads = [threading.Thread(target=self._run, args=(name, restore), name=name) for name in self._tasks]
        while any(thread.ident is None or thread.is_alive() for thread in threads):
            try:
                for thread in threads:
                    if thread.ident is None:
                        thread.start()
                for thread in threads:
                    thread.join()
            except Interrupted as stop:  # raised in the main thread, between two steps
                self._stopped_by = stop
        restore()
        if self._stopped_by is not None:
            raise self._stopped_by

    def pass_on(self, name: str) -> None:
        """Give the turn to the next task, and wait for the next turn."""
        restore = process_state()
        with self._changed:
            self._waiting.append(self._waiting.pop(0))
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._waiting[0] == name)
        restore()
        if self._stopped_by is not None:
            raise Interrupted(self._stopped_by.number)

    def _run(self, name: str, restore: Callable[[], None]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting[0] == name)
        try:
            restore()
            if self._stopped_by is None:
                self._tasks[name]()
        except Interrupted as stop:
            self._stopped_by = self._stopped_by or stop
        except BaseException as error:
            self.errors[name] = error
        finally:
            with self._changed:
                self._waiting.remove(name)
                self._changed.notify_all()


class TurnPerStep(TrainerCallback):  # type: ignore[misc]
    """Callback that ends the turn of a task before each optimizer step."""

    def __init__(self, turns: Turns, name: str) -> None:
        self._turns, self._name = turns, name

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._turns.pass_on(self._name)


def race(
    algorithms: Sequence[str],
    overrides: Sequence[str],
    recipe: Path,
    seeds: int,
    out: Path,
    echo: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Train a recipe with each algorithm in one process; a repeated race resumes what is unfinished.

    Args:
        algorithms: Names; differences are from the first one.
        overrides: ``key=value``.
        recipe: A recipe of one stage with an adapter. Its section `algorithm` is that of the algorithm it names; the
            others are as published.
        seeds: Number of seeds, from 1.
        out: Folder of the race; each algorithm and seed has a run in it.
        echo: Called with a line for each run that ends.

    Returns:
        The standings (:func:`rlm_lab.standings.standings`); `out` has them as ``race.json`` and ``race.png``.

    Raises:
        RlmError: A recipe is invalid (nothing is trained then), or a run failed.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise RlmError(
            "a race runs in one process", where="rlm sweep --race", hint="start it without `accelerate launch`"
        )
    if duplicates := sorted({name for name in algorithms if algorithms.count(name) > 1}):
        raise RlmError(f"the algorithm '{duplicates[0]}' is named twice", where="rlm sweep --race")
    (body, *later) = read(recipe, overrides)[0].bodies
    if later:
        hint = "train the earlier stages first, and race from their result: `model=runs/NAME/01-sft/model`"
        raise RlmError("a race takes a recipe of one stage", where=str(recipe), hint=hint)
    folders = {name: _folders(out, name, seeds) for name in algorithms}
    racers: dict[Path, Racer] = {}
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


def algorithms_of(overrides: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the algorithms among some overrides, and the other overrides.

    >>> algorithms_of(["algorithm=grpo,dapo", "trainer.max_steps=20"])
    (['grpo', 'dapo'], ['trainer.max_steps=20'])

    Raises:
        RlmError: No algorithm is named, or another key has several values.
    """
    named = [text.partition("=")[2] for text in overrides if text.startswith("algorithm=")]
    others = [text for text in overrides if not text.startswith("algorithm=")]
    several = [text for text in others if len(values_of(text)) > 1]
    if len(named) != 1 or several:
        problem = f"expected several values of the key 'algorithm' alone, got {' '.join(overrides) or 'none'}"
        hint = "`rlm sweep recipe.yaml algorithm=grpo,dapo trainer.max_steps=20 --race`"
        raise RlmError(problem, where="rlm sweep --race", hint=hint)
    return [name.strip() for name in named[0].split(",")], others


def _folders(out: Path, algorithm: str, seeds: int) -> list[Path]:
    """Return the folders of an algorithm's runs, one per seed."""
    name = algorithm.replace("/", "-")
    return [out / f"{name}-seed{seed}" for seed in range(1, seeds + 1)] if seeds > 1 else [out / name]


def _racer(path: Path, overrides: Sequence[str]) -> Racer:
    """Return a recipe and its registry."""
    recipe, registry = read(path, overrides)
    (stage,) = compose(recipe, registry, build_environment=False)
    if stage.lora is None:
        problem = "a race requires an adapter: the base is shared and frozen"
        raise RlmError(problem, where=str(path), hint=TRAIN_ADAPTER)
    if stage.settings.get("generation_device"):
        problem = "a race takes turns in one process, and `generation_device` would add one for each run"
        raise RlmError(problem, where=str(path), hint="`trainer.generation_device=null`")
    return recipe, registry


def _run(racers: Mapping[Path, Racer], echo: Callable[[str], None]) -> None:
    """Train all runs in turns."""
    base = SharedBase()

    def task(folder: Path, recipe: Recipe, registry: Registry) -> None:
        def prepare(stages: Sequence[Stage]) -> tuple[list[Stage], list[TurnPerStep]]:
            on_shared_base = [replace(stage, source=base.source(stage.source)) for stage in stages]
            return on_shared_base, [TurnPerStep(turns, str(folder))]

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
