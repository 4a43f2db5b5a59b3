"""Check of every optimizer step for divergence, by the losses and norms that the step computes anyway."""

from __future__ import annotations

import logging
from typing import Any

import torch
from transformers import TrainerCallback

from rlm_plugins.divergence import Divergence, check_number, check_weights, max_abs
from rlm_plugins.errors import RlmError

_LOG = logging.getLogger(__name__)
ZERO_GRAD_STEPS = 20
"""Optimizer steps in a row with gradient 0 after which a warning is logged, once."""


class DivergenceMonitor(TrainerCallback):  # type: ignore[misc]
    """Raises :class:`Divergence` before an update, or before the updated weights count as a step.

    Args:
        trainer: A transformers `Trainer` with the mixin `ObservedSteps`.
    """

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._weights = [w for w in trainer.model.parameters() if w.requires_grad]
        self._initial_max, self._zero_grad_steps = 0.0, 0
        self._losses: list[torch.Tensor] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the weights before the first step."""
        self._initial_max, self._losses = max_abs(self._weights), []

    def add_loss(self, loss: torch.Tensor) -> None:
        """Keep the loss of a micro-batch until the optimizer steps."""
        self._losses.append(loss.detach())

    def check_step(self, norm: Any) -> None:
        """Check the gradient and the losses of an optimizer step.

        Raises:
            Divergence: One of them is not finite, or beyond its limit.
        """
        losses, self._losses = self._losses, []
        try:
            self._check(norm, losses)
        except Divergence as error:
            self._losses = losses
            self._trainer.report_fault(error)
            raise

    def mark_incomplete(self, error: Exception) -> None:
        """Mark an error after which the last optimizer step cannot be saved.

        It can where no generation batch is begun and no critic has stepped.
        """
        if isinstance(error, RlmError):
            critic = getattr(self._trainer, "critic", None)
            error.is_before_update &= self._trainer.is_safe_point() and not (critic is not None and self._losses)

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
            for observer in self._trainer.observers:
                observer.fault(error)
            raise
