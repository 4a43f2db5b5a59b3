"""Loading of a process reward model by its path: the base of its reward and its shaper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.data import tables
from rlm_process.knobs import Steps
from rlm_process.prm_scorer import StepScorer, load_cached, model_kind

if TYPE_CHECKING:
    from torch import device


class ProcessModelPart:
    """A process reward model by its path, and the definition of a step."""

    def __init__(
        self,
        *,
        path: str,
        steps: Steps,
        separator: str,
        good: str,
        bad: str,
        longest: int,
        batch_size: int,
    ) -> None:
        self.path, self._steps = path, steps
        self._settings: dict[str, Any] = {"separator": separator, "words": (good, bad)}
        self._settings |= {"longest": longest, "batch_size": batch_size}
        self._device: device | None = None
        self._grader: StepScorer | None = None

    def check(self) -> None:
        """Check that the path holds a process reward model.

        Raises:
            RecipeError: It does not.
        """
        folder = tables.locate(self.path, where="path")
        if folder is not None:
            model_kind(folder)

    def setup(self, policy: Any, results: Mapping[str, Path]) -> None:
        """Take the policy's device."""
        self._device = policy.device

    @property
    def scorer(self) -> StepScorer:
        """The model, loaded on first use."""
        if self._grader is None:
            from rlm_plugins.workers.distributed import processes

            self._grader = StepScorer(*load_cached(self.path, self._device or processes().device), **self._settings)
        return self._grader
