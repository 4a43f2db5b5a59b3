"""Batches of the loss phase: a micro-batch with its counts, and the batch of the optimizer step that contains it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.loss_term import unflatten_counts
from rlm_plugins.step_batch import build_step_batch
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.critic_update import CriticUpdate
from rlm_plugins.trainer.micro_batches import StepMeans
from rlm_plugins.trainer.passes import ForwardPasses
from rlm_plugins.trainer.rollout import Rollout
from rlm_plugins.trainer.trl_metrics import PartMetrics


@dataclass
class LossBatches:
    """Batches that loss parts receive, made of TRL's dictionaries."""

    context: TrainerContext
    rollout: Rollout
    passes: ForwardPasses
    critic: CriticUpdate
    means: StepMeans
    _pending: list[tuple[Batch, torch.Tensor]] = field(default_factory=list, init=False)
    _accumulated: int = field(default=0, init=False)

    def reset(self) -> None:
        """Discard the step batches of an interrupted step."""
        self._pending, self._accumulated = [], 0

    def micro_batch(
        self,
        inputs: dict[str, Any],
        logp: torch.Tensor,
        entropy: torch.Tensor,
        values: torch.Tensor | None,
        live: torch.Tensor | None = None,
    ) -> Batch:
        """Return a micro-batch with the data of the loss phase; metrics are over its `live` sequences (B,)."""
        context, args = self.context, self.context.args
        metric_mask = inputs["mask"] if live is None else inputs["mask"] * live.unsqueeze(1)
        old_logp = inputs.get("old_per_token_logps")
        share = context.accumulation / args.steps_per_generation if context.is_training else 1  # of the generation
        num_micro_batches = float(context.accumulation * context.accelerator.num_processes)
        return Batch(
            group=inputs["group"],
            mask=inputs["mask"],
            truncated=inputs["truncated"],
            sources=self.rollout.by_source(inputs.get("source"), len(inputs["group"])),
            max_completion_length=args.max_completion_length,
            step=context.step,
            rewards=inputs["rewards"],
            advantages=inputs["advantages"],
            returns=inputs.get("returns"),  # type: ignore[arg-type]
            logp=logp,
            old_logp=logp.detach() if old_logp is None else old_logp,
            expected_logp=inputs.get("expected_logp"),  # type: ignore[arg-type]
            ref_logp=inputs.get("ref_per_token_logps"),  # type: ignore[arg-type]
            rollout_logp=inputs.get("sampling_per_token_logps"),  # type: ignore[arg-type]
            rollout_weight=inputs.get("importance_sampling_ratio"),  # type: ignore[arg-type]
            entropy=entropy,
            values=values,  # type: ignore[arg-type]
            old_values=inputs.get("old_values"),  # type: ignore[arg-type]
            num_tokens=inputs["num_tokens"].clamp(min=1.0) * share,
            num_sequences=inputs["num_sequences"].clamp(min=1.0) * share,
            num_sequences_all=inputs["num_sequences_all"] * share,
            num_micro_batches=torch.tensor(num_micro_batches, device=logp.device),
            term_counts=unflatten_counts(inputs, share),
            log=PartMetrics(context, self.means, metric_mask),
        )

    def step_batch(self, batch: Batch, inputs: dict[str, Any]) -> tuple[Batch, torch.Tensor]:
        """Return the batch of the optimizer step, computed once, and (B,) the position of this micro-batch in it."""
        if not self.context.is_training:
            return self._step_batches(batch, [inputs])[0]
        if not self._pending:
            self._pending = self._step_batches(batch, self._upcoming())
        self._accumulated = 0 if self.context.accelerator.sync_gradients else self._accumulated + 1
        return self._pending.pop(0)

    def _upcoming(self) -> list[dict[str, Any]]:
        """Return this micro-batch and those after it, up to the end of the optimizer step or the generation batch."""
        buffered, step = self.context.buffered_inputs, self.context.micro_step
        generation = self.context.micro_steps_per_generation
        count = min(self.context.accumulation - self._accumulated, generation - step % generation)
        return [buffered[(step + n) % len(buffered)] for n in range(count)]

    def _step_batches(self, batch: Batch, upcoming: list[dict[str, Any]]) -> list[tuple[Batch, torch.Tensor]]:
        """Return the step batch for each of the upcoming micro-batches, of which the first is `batch`."""
        micro_batches = [batch]
        for inputs in upcoming[1:]:
            with torch.no_grad():
                logp, entropy, _ = self.passes.of(self.context.model, inputs, compute_entropy=True)
                values = self.critic.values(inputs) if self.critic.critic is not None else None
            micro_batches.append(self.micro_batch(inputs, logp, entropy, values))
        positions = [inputs["global_index"] for inputs in upcoming]
        process = self.context.accelerator.process_index
        step_batch, rows = build_step_batch(micro_batches, positions, self.context.gather_rows, process)
        return [(step_batch, indices) for indices in rows]
