"""Sections of a stage in a recipe that a package owns (hook ``rlm_sections``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlm_plugins.stage import Stage
    from rlm_plugins.trainer.observer import StepObserver


class Section:
    """Section of a stage. The keyword-only arguments of `__init__` are its keys; every other member is optional.

    Attributes:
        on_by_default: A stage without the section has it with its defaults; ``none`` in the recipe turns it off.
        needs_equation: A stage whose trainer has a loss of its own cannot have it.
        passes: Called with the :class:`~rlm_plugins.trainer.context.TrainerContext` and TRL's forward pass; returns the
            :class:`~rlm_plugins.trainer.passes.ForwardPasses` of a trainer. None: the passes are TRL's, or those of
            another section.
    """

    on_by_default: bool = False
    needs_equation: bool = False
    passes: Callable[..., Any] | None = None

    def settings(self, stage: Stage, args: Any) -> Mapping[str, Any]:
        """Return settings under ``trainer:`` for a stage whose recipe does not set them.

        Args:
            stage: The stage.
            args: The config of its trainer without these settings.
        """
        return {}

    def training(self, stage: Stage, run: Any) -> AbstractContextManager[Any]:
        """Return a context in which the trainer of a stage is built and trained, in the run `run`."""
        return nullcontext()

    def observers(self, stage: Stage) -> Sequence[StepObserver]:
        """Return observers of the training steps of a stage."""
        return ()

    def callbacks(self, stage: Stage, run: Any, console: Any) -> Sequence[Any]:
        """Return transformers callbacks of a stage, in the run `run`, that print on the `rich` console."""
        return ()

    def warnings(self, stage: Stage) -> Sequence[str]:
        """Return the lines that ``rlm check`` prints as warnings."""
        return ()

    def check_data(self, stage: Stage, args: Any) -> Any:
        """Return what ``rlm check --json`` prints of the section: plain data, a list of lines for example."""
        return []

    def check_lines(self, data: Any) -> Sequence[str]:
        """Return the lines of ``rlm check``, of the result of `check_data`."""
        return list(data)
