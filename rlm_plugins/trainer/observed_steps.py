"""Mixin for a transformers `Trainer`: its steps are observed, and its checkpoints are complete or absent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from transformers import TrainerCallback

from rlm_plugins.trainer.checkpoint import DurableCheckpoints
from rlm_plugins.trainer.divergence_monitor import DivergenceMonitor
from rlm_plugins.trainer.observer import StepObserver


class ObservedSteps(DurableCheckpoints):
    """Calls the observers of a trainer around each micro-batch, and checks each optimizer step for divergence.

    Attributes:
        observers: In the order in which they are called.
        divergence: The check of losses, gradients and weights; None: they are not checked.
    """

    observers: Sequence[StepObserver] = ()
    divergence: DivergenceMonitor | None = None

    def observe(self, observers: Sequence[StepObserver]) -> None:
        """Attach observers, before `train` is called; those that are attached already are left out."""
        new = [observer for observer in observers if observer not in self.observers]
        self.observers = [*self.observers, *new]
        for observer in new:
            observer.attach(self)
            if isinstance(observer, TrainerCallback):
                self.add_callback(observer)  # type: ignore[attr-defined]

    def check_divergence(self) -> None:
        """Check each optimizer step from now on; see `trainer/divergence_monitor.py`."""
        self.divergence = DivergenceMonitor(self)
        # first: observers that are callbacks see a step only after its weights were checked
        self.callback_handler.callbacks.insert(0, self.divergence)  # type: ignore[attr-defined]

    def begin_training(self) -> None:
        """Prepare a call of `train`."""

    def train(self, *args: Any, **options: Any) -> Any:
        """Train, inside the contexts of the observers."""
        self.begin_training()
        with ExitStack() as context:
            for observer in self.observers:
                context.enter_context(observer.training())
            return super().train(*args, **options)  # type: ignore[misc]

    def training_step(self, model: Any, inputs: Any, *args: Any, **options: Any) -> torch.Tensor:
        """Run the trainer's own step, observed."""
        with self.observed_step():
            for observer in self.observers:
                observer.micro_batch(inputs)
            loss: torch.Tensor = super().training_step(model, inputs, *args, **options)  # type: ignore[misc]
            self.end_micro_batch(loss)
        return loss

    @contextmanager
    def observed_step(self) -> Iterator[None]:
        """Call the observers at the start of a micro-batch, and with an error that ends it."""
        for observer in self.observers:
            observer.begin_micro_batch()
        try:
            yield
        except Exception as error:
            self.report_fault(error)
            raise

    def end_micro_batch(self, loss: torch.Tensor) -> None:
        """Call the observers after the backward pass of a micro-batch."""
        if self.divergence is not None:
            self.divergence.add_loss(loss)
        for observer in self.observers:
            observer.end_micro_batch(loss)

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)  # type: ignore[misc]
        if self.divergence is not None:
            self.divergence.check_step(norm)
        for observer in self.observers:
            observer.gradient(norm)
        return norm

    def report_fault(self, error: Exception) -> None:
        """Record whether the last optimizer step can be saved, and call the observers with an error."""
        if self.divergence is not None:
            self.divergence.mark_incomplete(error)
        for observer in self.observers:
            observer.fault(error)
