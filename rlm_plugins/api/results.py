"""Results of the Python API, which a terminal and a notebook show as text."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rlm_plugins.errors import RlmError

Entry = dict[str, Any]


class Shown:
    """An object with a text for terminals and notebooks."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


class Table(Shown, list[Entry]):
    """Rows as plain data."""

    def __init__(self, rows: Sequence[Entry], text: str) -> None:
        super().__init__(rows)
        self.text = text


class Check(Table):
    """Findings of ``rlm check``, one entry per stage."""


class Explanation(Shown):
    """Everything known about a name.

    Attributes:
        entries: As ``rlm explain --json`` prints them.
    """

    def __init__(self, entries: Sequence[Entry], text: str) -> None:
        self.entries, self.text = list(entries), text


class Run(Shown):
    """One run and its results.

    Args:
        folder: Folder of the run.
        resume: Trains what is left of it; None: the run is read from its folder only.

    Raises:
        RlmError: The folder is no run.
    """

    def __init__(self, folder: str | Path, resume: Callable[[], None] | None = None) -> None:
        self.folder, self._resume = Path(folder), resume
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

    def model(self) -> tuple[Any, Any]:
        """Return model and tokenizer of the last stage, an adapter on its base.

        A vision-language model has its processor in place of the tokenizer.

        Raises:
            RlmError: No stage is finished.
        """
        from rlm_plugins.kernels.auto_class import class_of_folder, loaded_processing_class

        results = [path for stage in sorted(self.folder.glob("[0-9]*-*")) for path in stage.glob("*")]
        found = [path for path in results if path.name in ("adapter", "model")]
        if not found:
            raise RlmError("no stage of the run is finished", where=str(self.folder), hint="`.resume()`")
        model = class_of_folder(found[-1]).from_pretrained(found[-1])
        return model, loaded_processing_class(found[-1], model)

    def resume(self) -> Run:
        """Train what is left of the run, from its last checkpoint."""
        if self._resume is not None:
            self._resume()
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
