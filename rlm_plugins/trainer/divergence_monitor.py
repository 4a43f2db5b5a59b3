"""Check of every optimizer step for divergence, by the losses and norms that the step computes anyway."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from transformers import TrainerCallback

from rlm_plugins.divergence import Divergence, check_number, check_weights, max_abs
from rlm_plugins.errors import RlmError
from rlm_plugins.trainer.capsule_writer import CapsuleWriter

_LOG = logging.getLogger(__name__)
ZERO_GRAD_STEPS = 20
"""Optimizer steps in a row with gradient 0 after which a warning is logged, once."""


class DivergenceMonitor(TrainerCallback):  # type: ignore[misc]
    """Raises :class:`Divergence`; a step that an error ends is stored as a capsule.

    Args:
        trainer: A transformers `Trainer`; two of its methods are wrapped.
        capsules: Writer of its capsules.
    """

    def __init__(self, trainer: Any, capsules: CapsuleWriter) -> None:
        self._trainer, self._capsules = trainer, capsules
        self._weights = [w for w in trainer.model.parameters() if w.requires_grad]
        self._initial_max, self._losses, self._zero_grad_steps = 0.0, [], 0  # type: ignore[var-annotated]
        self._last_norm: Any = None
        self._training_step, self._grad_norm = trainer.training_step, trainer._get_grad_norm
        trainer.training_step, trainer._get_grad_norm = self._checked_step, self._checked_norm
        trainer.add_callback(self)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the weights before the first step."""
        self._initial_max = max_abs(self._weights)

    def _checked_step(self, model: Any, inputs: Any, *args: Any, **options: Any) -> torch.Tensor:
        self._capsules.add_inputs(inputs)
        try:
            loss: torch.Tensor = self._training_step(model, inputs, *args, **options)
        except Exception as error:
            if isinstance(error, RlmError):
                error.is_before_update &= self._is_complete(self._losses)
            self._capsules.save_fault(error)
            raise
        self._losses.append(loss.detach())
        return loss

    def _checked_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = self._grad_norm(model, grad_norm=grad_norm)
        losses, self._losses = self._losses, []
        try:
            self._check(norm, losses)
        except Divergence as error:
            error.is_before_update &= self._is_complete(losses)
            self._capsules.save_fault(error)
            raise
        self._last_norm = norm
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
        """Check gradient norm and losses with one transfer from the device."""
        step, accelerator = self._trainer.state.global_step, self._trainer.accelerator
        if norm is None or accelerator.scaler is not None:  # float16: its scaler skips such steps
            return
        grad_norm = torch.as_tensor(norm).detach().float()
        max_loss = torch.zeros_like(grad_norm)
        if losses:
            max_loss = torch.stack([x.float().to(grad_norm.device) for x in losses]).abs().amax()
        norm_value, loss_value = torch.stack([grad_norm.reshape(()), max_loss.reshape(())]).tolist()
        check_number(norm_value, "the norm of the gradient", step)
        if accelerator.num_processes == 1:  # losses differ between processes, but all processes must stop together
            check_number(loss_value, "the loss", step)
        self._warn_zero_gradient(norm_value)

    def _warn_zero_gradient(self, norm: float) -> None:
        self._zero_grad_steps = self._zero_grad_steps + 1 if norm == 0.0 else 0
        if self._zero_grad_steps == ZERO_GRAD_STEPS:
            _LOG.warning(
                "no gradient in %d optimizer steps: nothing has been learned since step %d\n  hint: see `reward_std` "
                "and `clip_ratio` in metrics.jsonl; rewards that never differ within a group give no advantage",
                ZERO_GRAD_STEPS,
                self._trainer.state.global_step - ZERO_GRAD_STEPS + 1,
            )

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Check the weights before the step counts as done: neither a log nor a checkpoint follows."""
        try:
            check_weights(self._weights, self._initial_max, "the policy", state.global_step)
        except Divergence as error:
            self._capsules.save_fault(error)
            raise
        self._capsules.end_step(self._last_norm)


def rescale_rates(trainer: Any, load: Callable[..., None]) -> Callable[..., None]:
    """Return a `_load_optimizer_and_scheduler` that restores the config's learning rate after loading a checkpoint."""

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
