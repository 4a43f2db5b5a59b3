"""``rlm sweep``: one run per combination of values and seeds, each in a process of its own."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from rlm_plugins.durable.stop_signals import Interrupted, current
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.recipe import document as recipes
from rlm_plugins.recipe.resolve import check_names
from rlm_plugins.run.manifest import check_resumable
from rlm_plugins.run.recipe_argument import read

_COMMA = re.compile(r",(?![^\[{(]*[\]})])")
"""A comma outside brackets."""
_KEY = re.compile(r"^[^=]*\.(?=[^=.]*=)")
"""All but the last word of the key of an override."""
_PARENT_DEATH_SIGNAL = 1
"""`PR_SET_PDEATHSIG` of Linux."""


def sweep(
    recipe: Path,
    overrides: Sequence[str],
    seeds: int,
    out: Path,
    echo: Callable[[str], None] = print,
    *,
    trust: bool = False,
) -> list[Path]:
    """Train a recipe with every combination of values; a repeated sweep resumes what is unfinished.

    Args:
        recipe: A recipe.
        overrides: ``key=value``; several values are separated by commas: ``trainer.learning_rate=1e-4,3e-4``.
        seeds: Number of seeds, from 1.
        out: Folder of the sweep; each run has a folder in it.
        echo: Called with a line before each run.
        trust: True if the code that the recipe runs is trusted.

    Returns:
        The folders of the runs, in the order of the combinations.

    Raises:
        RlmError: A combination is invalid, or a run in `out` is of another recipe (nothing is trained then), or a run
            failed.
    """
    runs = dict(combinations(recipe, overrides, seeds))
    for name, changes in runs.items():
        changed, registry = read(recipe, changes)
        check_names(changed, registry)
        if (out / name / "recipe.yaml").is_file():
            check_resumable(out / name, changed, registry)
    folders = []
    for number, (name, changes) in enumerate(runs.items(), 1):
        folder = out / name
        folders.append(folder)
        if (folder / "summary.json").is_file():
            echo(f"{number}/{len(runs)} {name}: complete, skipped")
            continue
        echo(f"{number}/{len(runs)} {name}")
        command = [sys.executable, "-P", "-m", "rlm_plugins", "train", str(recipe), *changes, "--out", str(folder)]
        command += ["--resume"] if (folder / "recipe.yaml").is_file() else []
        command += ["--trust"] if trust else []
        if code := _exit_code(command):
            hint = "the same command continues the sweep"
            raise RlmError(f"the run ended with exit code {code}", where=str(folder), hint=hint)
    return folders


def _exit_code(command: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    with current() as signals:
        signals.command, stop = "the same command", None
        # a group of its own: the terminal sends Ctrl-C to this process alone, which passes on each signal once
        # -P leaves out the working directory, which may hold a folder rlm_plugins
        paths = os.pathsep.join(str(Path(path or ".").resolve()) for path in sys.path)
        environment = {**os.environ, "PYTHONPATH": paths}
        end_with_parent = partial(_end_with_parent, os.getpid())
        process = subprocess.Popen(command, preexec_fn=end_with_parent, process_group=0, env=environment)
        while True:
            try:
                code = process.wait()
                break
            except Interrupted as error:
                stop = error
                process.send_signal(error.number)
        if stop is not None:
            raise stop
    return code


def _end_with_parent(parent: int) -> None:
    """Let this process receive SIGTERM when the sweep is killed: a repeated sweep would train its run a second time."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it was killed before this call
            os._exit(1)


def combinations(recipe: Path, overrides: Sequence[str], seeds: int) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each run and its overrides."""
    paths = recipes.load(recipe).stage_paths
    prefix = "" if paths == [()] else f"stages.{len(paths) - 1}."
    choices = [values_of(text) for text in overrides]
    used: set[str] = set()
    varied = [number for number, values in enumerate(choices) if len(values) > 1]
    for combination in itertools.product(*choices):
        for seed in range(1, seeds + 1):
            # the last word of each key: `algorithm.policy_loss.epsilon=0.2` is `epsilon=0.2` in the name of a folder
            words = [_KEY.sub("", combination[number]) for number in varied] + [f"seed={seed}"]
            name = re.sub(r"[^\w=.,+-]", "_", ",".join(words))
            while name in used:
                name += "_"
            used.add(name)
            yield name, [*combination, f"{prefix}trainer.seed={seed}"]


def values_of(text: str) -> list[str]:
    """Return an override for each of its values.

    >>> values_of("trainer.learning_rate=1e-4,3e-4")
    ['trainer.learning_rate=1e-4', 'trainer.learning_rate=3e-4']
    >>> values_of("algorithm.shapers=[overlong,length]")
    ['algorithm.shapers=[overlong,length]']

    Raises:
        RecipeError: The text is no override.
    """
    key, sign, values = text.partition("=")
    if not sign or not values:
        raise RecipeError(f"expected key=value, got '{text}'", where="rlm sweep")
    return [f"{key}={value.strip()}" for value in _COMMA.split(values)]
