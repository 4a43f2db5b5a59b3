"""Record of the training step in progress, from which a capsule is made: at every N-th step, and at a fault.

Between capsules the record only holds references to tensors that the step has anyway: nothing is computed or copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.capsule import Capsule
from rlm_plugins.functional.rng_state import rng_state
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.step_capsule import capsule_of


@dataclass
class StepRecorder:
    """Holds the data of the current generation batch and of the current optimizer step.

    Args:
        context: Context that the collaborators share.
        every: Optimizer steps between capsules; 0: only at a fault.
        snapshot: Returns states and RNG at the start of the generation: {`states`, `rng`}.
    """

    context: TrainerContext
    every: int
    snapshot: Callable[[], dict[str, Any]]
    grad_norm: Any = field(default=None, init=False)
    _first_step: int = field(default=-1, init=False)
    _generation: dict[str, Any] = field(default_factory=dict, init=False)
    _micro_batch_rows: list[torch.Tensor] = field(default_factory=list, init=False)
    _update: dict[str, Any] = field(default_factory=dict, init=False)
    _step_batch: tuple[Batch, Batch] | None = field(default=None, init=False)

    @property
    def is_due(self) -> bool:
        """True if the current optimizer step becomes a capsule."""
        return self._includes(self.context.step, 1)

    @property
    def is_first_step(self) -> bool:
        """True if no optimizer step has been done since the generation."""
        return self._first_step == self.context.step

    @property
    def is_generation_due(self) -> bool:
        """True if an optimizer step on the current generation batch becomes a capsule."""
        count = self.context.micro_steps_per_generation // self.context.args.gradient_accumulation_steps
        return self._includes(self.context.step, max(count, 1))

    def _includes(self, step: int, count: int) -> bool:
        is_recording = self.every and self.context.is_training
        return bool(is_recording) and (step + count) // self.every > step // self.every

    # -- generation and scoring

    def start_generation(self) -> None:
        """Forget the last generation batch."""
        if self.context.is_training:
            self._generation, self._micro_batch_rows, self._first_step = {"calls": []}, [], self.context.step

    def add(self, **entries: Any) -> None:
        """Record entries of the generation batch: `sampled`, `batch`, `is_shaped`, `turns` or `scored`."""
        if self.context.is_training:
            if self.is_generation_due and "batch" in entries:
                self._generation["scoring_rng"] = rng_state()
            self._generation |= entries

    def recorded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, whose results are recorded if the generation batch becomes a capsule."""
        if not self.is_generation_due:
            return function

        def record(*args: Any, **options: Any) -> Any:
            result = function(*args, **options)
            self._generation["calls"].append((name, _detached(result)))
            return result

        return record

    def record_micro_batch_rows(self, micro_batches: Sequence[Mapping[str, Any]]) -> None:
        """Record the rows of each micro-batch as sampled, before they are grouped by prompt."""
        self._micro_batch_rows = [micro_batch["global_index"] for micro_batch in micro_batches]

    # -- loss

    def add_micro_batch(self, inputs: Mapping[str, Any]) -> None:
        """Record the input of a micro-batch, and the RNG before its forward pass."""
        if not self.context.is_training:
            return
        if not self._update:
            self._update = {"micro_batches": [], "rng": [], "portions": [], "first": self.context.micro_step}
        self._update["micro_batches"].append(inputs)
        if self.is_due:
            self._update["rng"].append(rng_state())

    def add_portion(self, inputs: Mapping[str, Any], batch: Batch, *, has_old_logp: bool) -> None:
        """Record a portion of a micro-batch before its loss is computed.

        Args:
            inputs: TRL's dictionary.
            batch: What the loss parts receive.
            has_old_logp: False if the old log-probs are those of this forward pass.
        """
        if not self._update or not self.context.is_training:
            return
        if batch.step_batch is not None and (self._step_batch is None or self._step_batch[0] is not batch.step_batch):
            self._step_batch = batch.step_batch, replace(batch.step_batch, log=None)  # type: ignore[arg-type]
        values = None if batch.values is None else batch.values.detach()
        detached = {"logp": batch.logp.detach(), "entropy": batch.entropy.detach(), "values": values}
        recorded = replace(batch, **detached, log=None, step_batch=self._step_batch and self._step_batch[1])  # type: ignore[arg-type]
        entry = {"batch": recorded, "rows": inputs["global_index"], "knows_old": has_old_logp}
        self._update["portions"].append(entry)

    def add_loss(self, loss: torch.Tensor, skipped: tuple[torch.Tensor, ...] | None) -> None:
        """Record the loss of the last portion.

        Args:
            loss: Scalar, as the equation returns it.
            skipped: (B,) True for completions without a forward pass, and their log-probs and entropies; None without.
        """
        if self._update and self.context.is_training:
            self._update["portions"][-1] |= {"loss": loss.detach(), "skipped": skipped}

    def end_step(self) -> None:
        """Forget the optimizer step."""
        self._update, self._step_batch, self.grad_norm = {}, None, None

    # -- result

    def capsule(self, fault: Mapping[str, str] | None = None) -> Capsule:
        """Return the current step as a capsule; without a fault, all processes call it together.

        Args:
            fault: Fault that ended the step; the capsule then has the data of this process alone.
        """
        measured = {
            "generated_at": self._first_step,
            "grad_norm": None if self.grad_norm is None else float(self.grad_norm),
        }
        return capsule_of(self.context, self._generation, self._update_data(), self.snapshot(), measured, fault or {})

    def _update_data(self) -> dict[str, Any]:
        """Return the loss phase of this process."""
        update = dict(self._update)
        count, total = self.context.args.gradient_accumulation_steps, len(self._micro_batch_rows)
        first = update.get("first", 0) % (total or 1)
        first -= first % count if total and total % count == 0 else 0
        update["deal"] = [self._micro_batch_rows[(first + i) % total] for i in range(count)] if total else []
        return update


def _detached(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
