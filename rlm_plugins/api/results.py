"""Results of the Python API, which a terminal and a notebook show as text."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import RlmError, nearest
from rlm_plugins.lazy import optional_module

if TYPE_CHECKING:
    from rlm_plugins.recipe import Recipe
    from rlm_plugins.registry import Registry

Entry = dict[str, Any]
Prepare = Callable[[Sequence[str]], "tuple[Recipe, Registry]"]
"""Overrides → a recipe with Python objects in it, and the registry that has them."""


class Displayed:
    """An object with a text for terminals and notebooks."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


class Table(Displayed, list[Entry]):
    """Rows as plain data."""

    def __init__(self, rows: Sequence[Entry], text: str) -> None:
        super().__init__(rows)
        self.text = text


class Check(Table):
    """Findings of ``rlm check``, one entry per stage."""


class Explanation(Displayed):
    """Explanation of a name.

    Attributes:
        entries: As ``rlm explain --json`` prints them.
    """

    def __init__(self, entries: Sequence[Entry], text: str) -> None:
        self.entries, self.text = list(entries), text


class Run(Displayed):
    """One run and its results.

    Args:
        folder: Folder of the run.
        prepare: Returns recipe and registry of a run that was given Python objects, for further overrides; None: they
            are read from the folder.

    Raises:
        RlmError: The folder is no run.
    """

    def __init__(self, folder: str | Path, prepare: Prepare | None = None) -> None:
        self.folder, self.prepare = Path(folder), prepare
        if not (self.folder / "recipe.yaml").is_file():
            raise RlmError("there is no run in this folder", where=str(folder), hint="a run has a `recipe.yaml`")

    @property
    def text(self) -> str:  # type: ignore[override]
        """Name of the run and its score."""
        score = "" if self.score is None else f", held-out {self.summary['metric']} {self.score:.3f}"
        return f"Run('{self.folder}'{score})"

    @property
    def metrics(self) -> Any:
        """Every logged step: a `pandas.DataFrame` if pandas is installed, else a list of mappings."""
        return _frame(self._records("metrics.jsonl"))

    @property
    def samples(self) -> Any:
        """Logged completions with their rewards, in the form of :attr:`metrics`."""
        return _frame(self._records("samples.jsonl"))

    @property
    def summary(self) -> Entry:
        """Scores before and after, seconds; empty while the run is unfinished."""
        file = self.folder / "summary.json"
        return dict(json.loads(file.read_text())) if file.is_file() else {}

    @property
    def score(self) -> float | None:
        """Held-out score after training; None without evaluation."""
        return self.summary.get("after")

    def plot(self) -> Path:
        """Return the image of the learning curve.

        Raises:
            RlmError: There is none: matplotlib is not installed, or the run has no evaluation.
        """
        file = self.folder / "curve.png"
        if not file.is_file():
            raise RlmError("the run has no learning curve", where=str(self.folder), hint="pip install matplotlib")
        return file

    def view(self) -> Any:
        """Write the page of ``rlm view``, which a notebook displays.

        Raises:
            RlmError: The package rlm-view is not installed.
        """
        return optional_module("rlm_view.command", "the page of a run").displayed(self.folder)

    def model(self, stage: str | None = None) -> tuple[Any, Any]:
        """Return model and tokenizer of a finished stage, an adapter on its base.

        A vision-language model has its processor in place of the tokenizer. A reward model is a classifier of
        transformers.

        Args:
            stage: ``02-grpo`` or ``grpo``; None: the last finished one.

        Raises:
            RlmError: The stage is unknown or unfinished, or its base is a Python object of another process.
        """
        from rlm_plugins.models.auto_class import class_of_folder, loaded_processing_class

        paths = chain(self.folder.glob("*/adapter"), self.folder.glob("*/model"))
        results = {path.parent.name: path for path in paths}
        finished = sorted(name for name in results if (self.folder / name / "done").is_file())
        if not finished:
            raise RlmError("no stage of the run is finished", where=str(self.folder), hint="`.resume()`")
        named = {name[3:]: name for name in finished} | dict(zip(finished, finished, strict=True))
        if stage is not None and stage not in named:
            allowed, hint = ", ".join(finished), nearest(stage, named)
            raise RlmError(f"unknown or unfinished stage '{stage}'", allowed=allowed, hint=hint)
        name = finished[-1] if stage is None else named[stage]
        folder = results[name]
        is_adapter = folder.name == "adapter"
        model = self._adapted(name, folder) if is_adapter else class_of_folder(folder).from_pretrained(folder)
        return model, loaded_processing_class(folder, model)

    def _adapted(self, stage: str, folder: Path) -> Any:
        """Return the adapter of a stage on its base, which may be the merged result of the stage before."""
        from rlm_plugins.cli.recipe_argument import read
        from rlm_plugins.cli.run_result import trained_stage
        from rlm_plugins.models import reward_model_io
        from rlm_plugins.recipe.compose import compose
        from rlm_plugins.run.stage_result import adapted

        if (folder / reward_model_io.NOTE).is_file():
            return reward_model_io.load_peft_model(folder)
        recipe, registry = (self.prepare or partial(read, self.folder))(())
        return adapted(trained_stage(self.folder, compose(recipe, registry, held_out_only=True), stage))

    def resume(self) -> Run:
        """Train the rest of the run from its last checkpoint."""
        if self.prepare is not None:
            from rlm_plugins.run.train import train

            train(*self.prepare(()), self.folder, resume=True)
            return self
        from rlm_plugins.cli.launch import launch

        launch(self.folder, [], resume=True)
        return self

    def _records(self, file: str) -> list[Entry]:
        path = self.folder / file
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def _frame(records: list[Entry]) -> Any:
    try:
        import pandas  # type: ignore[import-untyped]
    except ImportError:
        return records
    return pandas.DataFrame(records)
