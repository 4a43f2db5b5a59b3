"""Check of every optimizer step for divergence, by numbers that the step has computed already."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import TrainerCallback

from rlm_plugins.divergence import Divergence, check_number, check_weights, largest
from rlm_plugins.errors import RlmError

_LOG = logging.getLogger(__name__)
SILENT_STEPS = 20
"""Optimizer steps without a gradient after which a run says so, once."""


class DivergenceMonitor(TrainerCallback):  # type: ignore[misc]
    """Raises :class:`Divergence`; the micro-batches of the step are saved for a replay.

    Args:
        trainer: A transformers `Trainer`; two of its methods are wrapped.
        folder: The folder ``divergence-STEP`` is created in it.
    """

    def __init__(self, trainer: Any, folder: Path) -> None:
        self._trainer, self._folder = trainer, folder
        self._weights = [w for w in trainer.model.parameters() if w.requires_grad]
        self._before, self._losses, self._inputs, self._silent = 0.0, [], [], 0  # type: ignore[var-annotated]
        self._training_step, self._grad_norm = trainer.training_step, trainer._get_grad_norm
        trainer.training_step, trainer._get_grad_norm = self._step, self._norm
        trainer.add_callback(self)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the weights before the first step."""
        self._before = largest(self._weights)

    def _step(self, model: Any, inputs: Any, *args: Any, **options: Any) -> torch.Tensor:
        self._inputs.append(inputs)
        try:
            loss: torch.Tensor = self._training_step(model, inputs, *args, **options)
        except RlmError as error:
            error.is_before_update &= self._is_complete(self._losses)
            if isinstance(error, Divergence):
                self._save(error)
            raise
        self._losses.append(loss.detach())
        return loss

    def _norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = self._grad_norm(model, grad_norm=grad_norm)
        losses, self._losses = self._losses, []
        try:
            self._check(norm, losses)
        except Divergence as error:
            error.is_before_update &= self._is_complete(losses)
            self._save(error)
            raise
        finally:
            self._inputs = []
        return norm

    def _is_complete(self, losses: list[torch.Tensor]) -> bool:
        """Return True if the last optimizer step can be saved: no generation batch is begun, no critic has stepped.

        Args:
            losses: Those of the micro-batches of this step that have been trained on.
        """
        components = getattr(self._trainer, "components", None)
        has_critic = components is not None and components.critic.critic is not None
        return self._trainer.is_safe_point() and not (has_critic and losses)

    def _check(self, norm: Any, losses: list[torch.Tensor]) -> None:
        """Check loss and gradient, which one transfer from the device brings."""
        step, accelerator = self._trainer.state.global_step, self._trainer.accelerator
        if norm is None or accelerator.scaler is not None:  # float16: its scaler skips such steps
            return
        own = torch.as_tensor(norm).detach().float()
        loss = torch.stack([x.float().to(own.device) for x in losses]).abs().amax() if losses else torch.zeros_like(own)
        value, size = torch.stack([own.reshape(()), loss.reshape(())]).tolist()
        check_number(value, "the norm of the gradient", step)
        if accelerator.num_processes == 1:  # each process has a loss of its own, and all must stop together
            check_number(size, "the loss", step)
        self._note_silence(value)

    def _note_silence(self, norm: float) -> None:
        self._silent = self._silent + 1 if norm == 0.0 else 0
        if self._silent == SILENT_STEPS:
            _LOG.warning(
                "no gradient in %d optimizer steps: nothing has been learned since step %d\n  hint: see `reward_std` "
                "and `clip_ratio` in metrics.jsonl; rewards that never differ within a group give no advantage",
                SILENT_STEPS,
                self._trainer.state.global_step - SILENT_STEPS + 1,
            )

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Check the weights before the step counts as done: neither a log nor a checkpoint follows."""
        check_weights(self._weights, self._before, "the policy", state.global_step)

    def _save(self, error: Divergence) -> None:
        """Save the micro-batches of the step; a failure to do so must not hide the error."""
        step = self._trainer.state.global_step
        folder = self._folder / f"divergence-{step + 1}"
        buffered = getattr(self._trainer, "_buffered_inputs", None)
        batches = buffered if buffered is not None else self._inputs
        try:
            if self._trainer.args.should_save:
                save_micro_batches(folder, batches, {"step": step, "problem": error.problem})
                error.hint = f"the micro-batches of the step are in {folder}"
        except OSError:
            _LOG.warning("the micro-batches of the step could not be saved in %s", folder)


def save_micro_batches(folder: Path, batches: list[Mapping[str, Any]], facts: Mapping[str, Any]) -> None:
    """Write tensors to ``inputs.safetensors`` (``0/completion_ids``, …), all else to ``step.json``."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, torch.Tensor] = {}
    others: dict[str, str] = {}
    for number, batch in enumerate(batches):
        for name, value in batch.items() if isinstance(batch, Mapping) else ():
            key = f"{number}/{name}"
            if isinstance(value, torch.Tensor):
                tensors[key] = value.detach().cpu().contiguous().clone()
            else:
                others[key] = repr(value)[:2000]
    save_file(tensors, folder / "inputs.safetensors")
    (folder / "step.json").write_text(json.dumps({**facts, "inputs": others}, indent=2) + "\n", encoding="utf-8")


def rescale_rates(trainer: Any, load: Callable[..., None]) -> Callable[..., None]:
    """Return `_load_optimizer_and_scheduler` that sets the learning rate of the config after it has loaded another."""

    def load_and_rescale(checkpoint: str | None) -> None:
        load(checkpoint)
        scheduler = trainer.lr_scheduler
        bases = getattr(scheduler, "base_lrs", None)
        if not checkpoint or not bases or not bases[0]:
            return
        ratio = trainer.args.learning_rate / bases[0]
        scheduler.base_lrs = [rate * ratio for rate in bases]
        scheduler._last_lr = [rate * ratio for rate in scheduler._last_lr]
        for group in trainer.optimizer.param_groups:
            group["lr"], group["initial_lr"] = group["lr"] * ratio, group.get("initial_lr", group["lr"]) * ratio

    return load_and_rescale
