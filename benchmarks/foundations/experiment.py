"""An experiment: arms × seeds of one recipe, measured once each: ``python benchmarks/foundations/discovery.py`` …

The first stage of ``NAME.yaml`` makes the start of a seed, the second is the training that is compared. An arm
overrides keys of either. Arms with the same first stage begin from the same weights.

::

    benchmarks/results/
      foundations/NAME.jsonl   one line per arm and seed; a line made with other settings is measured again
      foundations/NAME.png     the picture
      foundations.md           the page: its table of this experiment
      runs/foundations/        the runs themselves (not in git)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # must be set before torch is imported

from rlm_plugins import recipe
from rlm_plugins.recipe import yaml_strict

HERE = Path(__file__).parent
START = "start"
"""Arm that is the start itself: it is sampled from, and not trained."""
Record = dict[str, Any]


@dataclass(frozen=True)
class Arm:
    """One setting that is compared.

    Args:
        name: In table and picture.
        overrides: ``key=value`` of the second stage.
        start: ``key=value`` of the first stage.
    """

    name: str
    overrides: tuple[str, ...] = ()
    start: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """A column of the table.

    Args:
        title: Its heading.
        value: Figure of a record; NaN if it has none.
        share: True for a share, printed in percent.
    """

    title: str
    value: Callable[[Record], float]
    share: bool = True


@dataclass(frozen=True)
class Experiment:
    """Arms on one recipe, with the table and the picture that compare them.

    Args:
        name: Of recipe, records and picture.
        title: Heading of the picture.
        arms: What is compared; differences are those from the first.
        columns: Of the table; the first is compared between arms.
        draw: Draws the records into a figure of matplotlib.
        logged: Names of logged metrics whose curves are kept.
        k: Completions sampled per held-out prompt of each set, before and after training; 0: none.
        own: Further figures of a finished run.
        derive: Adds figures to the records that need several of them.
    """

    name: str
    title: str
    arms: Sequence[Arm]
    columns: Sequence[Column]
    draw: Callable[[Any, Sequence[Record]], None]
    logged: Sequence[str] = ()
    k: int = 0
    own: Callable[[Any], Record] = field(default=lambda run: {})
    derive: Callable[[Sequence[Record]], None] = field(default=lambda records: None)

    @property
    def recipe(self) -> Path:
        """Recipe with the start and the training."""
        return HERE / f"{self.name}.yaml"

    def sources(self) -> list[str]:
        """Return the text of the recipe and of each Python file that it loads."""
        files = [HERE / name for name in yaml_strict.read(self.recipe).data.get("plugins", {}).get("load", ())]
        return [file.read_text() for file in (self.recipe, *files)]


@dataclass(frozen=True)
class Job:
    """One arm with one seed."""

    experiment: Experiment
    arm: Arm
    seed: int
    out: Path
    overrides: tuple[str, ...] = ()

    @property
    def start(self) -> Path:
        """Folder of the run that makes the start."""
        return self._folder(f"start-{_digest(self.arm.start, self.overrides, *self.experiment.sources())}")

    @property
    def folder(self) -> Path:
        """Folder of the run of the arm."""
        return self._folder("".join(letter if letter.isalnum() else "-" for letter in self.arm.name))

    @property
    def key(self) -> str:
        """Digest of every setting: a record with another one is measured again."""
        return _digest(*self.experiment.sources(), self.arm, self.overrides, self.experiment.k)

    def _folder(self, name: str) -> Path:
        return self.out / "runs/foundations" / f"{self.experiment.name}-{name}-{self.seed}"

    def recipes(self) -> tuple[recipe.Recipe, recipe.Recipe]:
        """Return the recipes of the start and of the arm."""
        first, second = yaml_strict.read(self.experiment.recipe).data["stages"]
        first = {**first, "model": {**first["model"], "seed": self.seed}}
        model = {"name": "pretrained", "path": str(self.start / "01-start/model"), **second.get("model", {})}
        second = {**second, "model": model}
        return self._load(first, self.arm.start), self._load(second, self.arm.overrides)

    def _load(self, stage: Record, overrides: Sequence[str]) -> recipe.Recipe:
        changes = [f"stages.0.{text}" for text in (*overrides, *self.overrides, f"trainer.seed={self.seed}")]
        return recipe.load(self.experiment.recipe, [f"stages={json.dumps([stage])}", *changes])


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
