"""Observers of a training step (hook ``rlm_observers``): what may watch, delay or extend a step without changing it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback

from rlm_plugins.equation.statistics import kl_estimate
from rlm_plugins.equation.step import Divergence, check_number, check_weights, max_abs
from rlm_plugins.trainer.checkpoint import DurableCheckpoints
from rlm_plugins.workers.distributed import whole

if TYPE_CHECKING:
    from rlm_plugins.equation.batch import Batch
    from rlm_plugins.trainer.rollout import CompletionView


class StepObserver:
    """Observer of the training steps of one trainer. Every method does nothing by default.

    The methods stand in the order in which a step calls them, on every process. Those below `sampling` up to `scored`
    are called once per generation batch, the others once per micro-batch. A trainer with a loss of its own (SFT, a
    reward model) calls `attach`, `training`, `begin_micro_batch`, `micro_batch`, `end_micro_batch`, `gradient` and
    `fault` only. An observer with `state_dict` and `load_state_dict` is saved in checkpoints under its `name`. One that
    is a ``transformers.TrainerCallback`` too is added to the callbacks of the trainer. A part of
    the equation may have a method `observer` that returns one.

    Attributes:
        name: Key of its state in checkpoints.
        in_snapshot: True if its state is restored when a step fails; False: only when a checkpoint is loaded.
        provides: Columns of TRL's dictionary that its `sampled` returns, and that TRL then need not compute.
        is_off_policy: True if completions come from another policy than the current one.
    """

    name: str = ""
    in_snapshot: bool = True
    provides: Sequence[str] = ()
    is_off_policy: bool = False

    def configure(self, arguments: dict[str, Any]) -> None:
        """Change the arguments of TRL's trainer, in place, before it is built."""

    def attach(self, trainer: Any) -> None:
        """Store the trainer: `trainer.components` are its collaborators, if its algorithm has an equation."""

    def training(self) -> AbstractContextManager[Any]:
        """Return a context that is open while the trainer trains."""
        return nullcontext()

    def requires(self, name: str) -> bool:
        """Return True if it needs data of the batch that no part may have named; asked for each generation batch."""
        return False

    def begin_micro_batch(self) -> None:
        """Handle the start of a micro-batch: of generation too, where one is due."""

    def skips_update(self) -> bool:
        """Return True to skip this micro-batch: neither a forward nor a backward pass."""
        return False

    # -- a generation batch

    def begin_generation(self) -> None:
        """Handle the start of a generation batch, over all its sampling rounds."""

    def sampling(self) -> AbstractContextManager[Any]:
        """Return a context that is open while the policy generates completions."""
        return nullcontext()

    def completions(self, inputs: Sequence[Mapping[str, Any]], view: CompletionView) -> None:
        """Handle the completions of this process as rewards get them, with the examples they belong to."""

    def sampled(self, out: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return columns (B, …) to add to TRL's dictionary `out` of the completions of this process."""
        return {}

    def scoring(self, batch: Batch, *, is_shaped: bool) -> None:
        """Handle the completions of all processes before the advantages are computed."""

    def called(self, name: str, result: Any) -> None:
        """Handle the result of a function that a scoring part called: `logprobs_of`, `generate` or `rewards_of`."""

    def scored(self, batch: Batch, turn_ends: Sequence[Sequence[int]]) -> None:
        """Handle the completions of all processes with their advantages, and each turn's last token."""

    def micro_batches(self, micro_batches: Sequence[Mapping[str, Any]]) -> None:
        """Handle the micro-batches of a generation batch before they are grouped by prompt."""

    # -- a micro-batch

    def micro_batch(self, inputs: Mapping[str, Any]) -> None:
        """Handle the inputs of a micro-batch before its forward pass."""

    def portion(self, inputs: Mapping[str, Any], batch: Batch, *, has_old_logp: bool) -> None:
        """Handle what the loss parts get for some completions of a micro-batch, before their loss is computed.

        Args:
            inputs: TRL's dictionary.
            batch: What the loss parts get.
            has_old_logp: False if the old log-probs are those of this forward pass.
        """

    def portion_loss(self, loss: torch.Tensor, skipped: tuple[torch.Tensor, ...] | None) -> None:
        """Handle the loss of the last portion.

        Args:
            loss: Scalar, as the equation returns it.
            skipped: (B,) True for completions without a forward pass, and their log-probs and entropies; None unless
                `requires("skipped")`.
        """

    def end_micro_batch(self, loss: torch.Tensor) -> None:
        """Handle a micro-batch after its backward pass; `loss` is what the trainer logs."""

    def gradient(self, norm: Any) -> None:
        """Handle the norm of the gradient before the optimizer steps."""

    def fault(self, error: Exception) -> None:
        """Handle an error that ends the step."""


_LOG = logging.getLogger(__name__)
ZERO_GRAD_STEPS = 20
"""Optimizer steps in a row with gradient 0 after which a warning is logged, once."""


class DivergenceMonitor(TrainerCallback):  # type: ignore[misc]
    """Raises :class:`Divergence` before an update, or before the updated weights count as a step."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._weights: list[torch.Tensor] = []
        self._initial_max, self._zero_grad_steps = 0.0, 0
        self._losses: list[torch.Tensor] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the weights before the first step, after FSDP has replaced them."""
        self._weights = [w for w in self._trainer.model.parameters() if w.requires_grad]
        self._initial_max, self._losses = max_abs(self._weights), []

    def add_loss(self, loss: torch.Tensor) -> None:
        """Keep the loss of a micro-batch until the optimizer steps."""
        self._losses.append(loss.detach())

    def check_step(self, norm: Any) -> None:
        """Check the gradient and the losses of an optimizer step."""
        losses, self._losses = self._losses, []
        try:
            self._check(norm, losses)
        except Divergence as error:
            self._trainer.report_fault(error)
            raise

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Mark the weights as changed until the step counts as done."""
        self._trainer.is_updating = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Mark the step as done."""
        self._trainer.is_updating = False

    def _check(self, norm: Any, losses: list[torch.Tensor]) -> None:
        """Check gradient norm and losses with one transfer from the device."""
        step, accelerator = self._trainer.state.global_step, self._trainer.accelerator
        if norm is None or accelerator.scaler is not None:  # float16: its scaler skips such steps
            return
        grad_norm = whole(torch.as_tensor(norm)).detach().float()
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
            self._trainer.report_fault(error)
            raise


def drop_gradients(model: Any) -> None:
    """Drop the gradients of this step: the optimizer skips parameters without one, also in weight decay."""
    for weight in model.parameters():
        weight.grad = None


class TargetKL(StepObserver):
    """Skips updates on a generation batch once KL(π_old ‖ π) exceeds a limit.

    The KL of every update is estimated before it is taken, over its completions of all processes: the mean of
    w − 1 − log w over the trained tokens, w = π / π_old. The first update beyond `target_kl` is not taken, and those
    left on the generation batch are not computed. They count as steps, so schedules, `max_steps` and evaluation stay
    where they were. A critic still takes the first of them, whose gradient exists, and then waits too. Checkpoints
    need no state of this, since they are taken only between generation batches.

    Args:
        limit: In nats per token.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._sums: list[torch.Tensor] = []
        self._is_exceeded = False

    def attach(self, trainer: Any) -> None:
        """Store the context of the trainer, whose weights are not sharded."""
        self.context = trainer.components.context
        self.context.refuse_sharding("`target_kl` cannot be kept", "trainer.target_kl")

    def begin_micro_batch(self) -> None:
        """Discard the estimates of an interrupted step."""
        if self.context.micro_step % self.context.args.gradient_accumulation_steps == 0:
            self._sums.clear()

    def skips_update(self) -> bool:
        """Return True for the updates left on this generation batch; each batch starts anew."""
        if self.context.micro_step % self.context.micro_steps_per_generation == 0:
            self._is_exceeded = False
        if self._is_exceeded and self.context.accelerator.sync_gradients:
            self.context.log("update/skipped", 1.0)
        return self._is_exceeded

    def portion(self, inputs: Mapping[str, Any], batch: Batch, *, has_old_logp: bool) -> None:
        """Add the KL of some completions to the estimate."""
        if not self.context.is_training:
            return
        with torch.no_grad():
            kl = kl_estimate(batch.old_logp, batch.logp, "k3").where(batch.mask, 0.0)
            self._sums.append(torch.stack([kl.sum(), batch.mask.sum().to(kl.dtype)]))

    def end_micro_batch(self, loss: torch.Tensor) -> None:
        """Drop the gradient of an update that starts beyond the limit."""
        if not self._sums or not self.context.accelerator.sync_gradients:
            return
        total = self.context.accelerator.reduce(torch.stack(self._sums).sum(0), reduction="sum")
        self._sums.clear()
        kl = (total[0] / total[1].clamp(min=1.0)).item()
        self._is_exceeded = kl > self._limit
        self.context.log("update/kl", kl)
        self.context.log("update/skipped", float(self._is_exceeded))
        if self._is_exceeded:
            drop_gradients(self.context.model)


class ObservedSteps(DurableCheckpoints):
    """Calls the observers of a trainer around each micro-batch, and checks each optimizer step for divergence.

    Attributes:
        observers: In the order in which they are called.
        divergence: The check of losses, gradients and weights; None: they are not checked.
        is_updating: True while a weight may differ from those of the last complete optimizer step.
    """

    observers: Sequence[StepObserver] = ()
    divergence: DivergenceMonitor | None = None
    is_updating: bool = False

    def observe(self, observers: Sequence[StepObserver]) -> None:
        """Attach observers, before `train` is called; those that are attached already are left out."""
        new = [observer for observer in observers if observer not in self.observers]
        self.observers = [*self.observers, *new]
        for observer in new:
            observer.attach(self)
            if isinstance(observer, TrainerCallback):
                self.add_callback(observer)  # type: ignore[attr-defined]

    def check_divergence(self) -> None:
        """Check each optimizer step from now on; see `trainer/observer.py`."""
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
        """Call the observers with an error."""
        for observer in self.observers:
            observer.fault(error)
