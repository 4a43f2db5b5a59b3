"""Loss of a micro-batch: forward passes, and the objective of the equation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from rlm_plugins.functional.rng_state import temporary_rng_state
from rlm_plugins.rollout.dynamic_sampling import has_batch_dim
from rlm_plugins.schedule import Schedule
from rlm_plugins.step import objective
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.critic_update import CriticUpdate
from rlm_plugins.trainer.loss_batches import LossBatches
from rlm_plugins.trainer.micro_batches import MicroBatches, StepMeans
from rlm_plugins.trainer.old_logprobs import OldLogProbs
from rlm_plugins.trainer.passes import ForwardPasses


@dataclass
class Loss:
    """Loss of the micro-batches of an optimizer step."""

    context: TrainerContext
    batches: LossBatches
    passes: ForwardPasses
    old_logprobs: OldLogProbs
    critic: CriticUpdate
    micro_batches: MicroBatches
    means: StepMeans
    schedules: Mapping[str, Schedule]
    aux_loss_coef: float | None

    def reset(self) -> None:
        """Discard the partial sums of an interrupted step."""
        self.batches.reset()
        self.means.reset()

    def of_micro_batch(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """Return the loss of a micro-batch, which may be split into portions: all but the last are backpropagated here.

        Args:
            model: Policy, as TRL's training step passes it.
            inputs: The micro-batch.
        """
        for observer in self.context.observers:
            observer.micro_batch(inputs)
        portions = self.passes.portions(inputs)
        if portions is None:
            return self.of_portion(model, inputs)
        self.means.accumulate()
        early, last = portions[:-1], portions[-1] if portions else None
        accelerator = self.context.accelerator
        total = torch.zeros((), device=accelerator.device, requires_grad=last is None)
        for portion in early:
            with accelerator.no_sync(model):
                loss = self.of_portion(model, portion)
                with torch.autocast(loss.device.type, enabled=False):
                    accelerator.backward(loss)
            total = total + loss.detach()
        loss = total if last is None else total + self.of_portion(model, last)
        if accelerator.sync_gradients:
            self.means.flush()
        return loss

    def of_portion(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """Return the loss of completions that share a forward pass."""
        steps, is_first = self.micro_batches.steps(), self.old_logprobs.come_from_update()
        live = self.passes.needs_forward(inputs, steps) if self.context.is_training else None
        has_old_logp = "old_per_token_logps" in inputs and not is_first
        if live is not None:
            self.means.add("speed/skipped", (~live).sum().float(), torch.tensor(float(len(live)), device=live.device))
        has_aux_loss = self.aux_loss_coef is not None
        with self.critic.hidden_states() as hidden:
            logp, entropy, aux_loss = self.passes.of(
                model,
                inputs,
                compute_entropy=True,
                compute_aux_loss=has_aux_loss,
                live=None if live is None else live.tolist(),
            )
        if is_first:
            inputs.setdefault("old_per_token_logps", logp.detach())
        if live is not None:
            logp, entropy = _fill_skipped(logp, inputs.get("old_per_token_logps"), live), entropy * live.unsqueeze(1)
        batch = self.batches.micro_batch(inputs, logp, entropy, self.critic.for_loss(inputs, hidden), live)
        if not self.context.equation.is_per_sequence:
            batch.step_batch, batch.step_batch_rows = self.batches.step_batch(batch, inputs)
        processes = self.context.accelerator.num_processes
        for observer in self.context.observers:
            observer.portion(inputs, batch, has_old_logp=has_old_logp)
        loss = objective(batch, self.context.equation)
        skipped = self._skipped(inputs, live)
        for observer in self.context.observers:
            observer.portion_loss(loss, skipped)
        loss = loss * processes  # DDP averages gradients: undo it
        if has_aux_loss:
            loss = loss + self.aux_loss_coef * aux_loss / self.context.accumulation
            self.means.add("aux_loss", aux_loss.detach().float(), torch.ones((), device=loss.device))
        batch.log("entropy", entropy.detach())
        for name, schedule in self.schedules.items():
            self.context.log(f"schedule/{name}", schedule.at(batch.step))
        return loss

    def _skipped(self, inputs: dict[str, Any], live: torch.Tensor | None) -> tuple[torch.Tensor, ...] | None:
        """Return (B,) True for the completions without a forward pass, and their log-probs and entropies.

        Only an observer needs them: a replay under another algorithm may have a gradient there.
        """
        if live is None or live.all() or not self.context.is_observed("skipped"):
            return None
        rows = {name: x[~live] if has_batch_dim(x) else x for name, x in inputs.items()}
        with torch.no_grad(), temporary_rng_state():
            recorded = self.old_logprobs.of_samples(rows)
            if recorded is not None:
                return ~live, *recorded
            logp, entropy, _ = self.passes.of(self.context.model, rows, compute_entropy=True)
        return ~live, logp, entropy


def _fill_skipped(logp: torch.Tensor, old_logp: torch.Tensor | None, live: torch.Tensor) -> torch.Tensor:
    """Return `logp` (B, T) with `old_logp` for sequences that were skipped, so that their ratio is 1."""
    return logp.where(live.unsqueeze(1), 0.0 if old_logp is None else old_logp)
