"""The best model of a stage: trained weights at the evaluation with the best lower end of its interval."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from rlm_plugins.distributed import from_main_process, processes
from rlm_plugins.durable.sealed import damages, publish_sealed
from rlm_plugins.errors import RlmError
from rlm_plugins.models.adapters import without_auxiliary
from rlm_plugins.trainer.checkpoint import saving

WEIGHTS, SCORE = "weights.safetensors", "score.json"


class BestModel:
    """Saves the best weights in the folder of a stage, from where a resumed stage loads their score.

    Args:
        folder: Folder ``best`` of the stage.

    Attributes:
        score: ``step``, ``score``, ``low`` and ``high`` of the best evaluation; None before the first one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.score: dict[str, Any] | None = None

    def load_score(self) -> None:
        """Set `score` to that of the weights saved by an interrupted stage; None without any or if damaged."""
        self.score = from_main_process(self._read)

    def _read(self) -> dict[str, Any] | None:
        if not self._folder.is_dir() or damages(self._folder):
            return None
        score: dict[str, Any] = json.loads((self._folder / SCORE).read_bytes())
        return score

    def update(self, model: Any, step: int, score: float, low: float, high: float) -> None:
        """Save the trained weights if the lower end of the interval is above the best one so far.

        Args:
            model: The policy, or the reward model, in training.
            step: Optimizer steps done.
            score: The held-out score.
            low: Lower end of its interval; a NaN never replaces the best.
            high: Upper end.

        Raises:
            RlmError: The weights cannot be written.
        """
        if not low > (self.score["low"] if self.score else float("-inf")):
            return
        self.score = {"step": step, "score": score, "low": low, "high": high}
        if processes().is_main_process:
            self._write(model, self.score)
        processes().wait_for_everyone()

    def _write(self, model: Any, score: dict[str, Any]) -> None:
        from safetensors.torch import save_file

        staged = self._folder.with_name(".best")
        with saving(self._folder, staged):
            staged.mkdir(parents=True)
            save_file({name: x.detach().cpu().contiguous() for name, x in _trained(model).items()}, staged / WEIGHTS)
            (staged / SCORE).write_text(json.dumps(score) + "\n", encoding="utf-8")
            publish_sealed(staged, self._folder)

    def restore(self, model: Any) -> None:
        """Copy the best weights into the model.

        Raises:
            RlmError: They are damaged, or those of another model.
        """
        from safetensors.torch import load_file

        reasons, trained = damages(self._folder), _trained(model)
        saved = {} if reasons else load_file(self._folder / WEIGHTS)
        if reasons or saved.keys() != trained.keys():
            problem = f"the best weights cannot be used: {', '.join(reasons) or 'they are those of another model'}"
            raise RlmError(problem, where=str(self._folder), hint="`evaluation.keep: last` keeps the last weights")
        with torch.no_grad():
            for name, x in trained.items():
                x.copy_(saved[name])


def _trained(model: Any) -> dict[str, torch.Tensor]:
    """Return the trainable weights, without those of a critic."""
    trained = {name: x for name, x in model.named_parameters() if x.requires_grad}
    return without_auxiliary(model, trained) if hasattr(model, "peft_config") else trained
