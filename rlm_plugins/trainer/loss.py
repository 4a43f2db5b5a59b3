"""Loss phase: micro-batches with the counts of their step, forward passes, and the objective of the equation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.dispatch import unflatten_counts
from rlm_plugins.equation.knobs import Schedule
from rlm_plugins.equation.rng_state import temporary_rng_state
from rlm_plugins.equation.step import build_step_batch, objective
from rlm_plugins.rollout.dynamic_sampling import has_batch_dim
from rlm_plugins.trainer.context import TRL_COLUMNS, TrainerContext
from rlm_plugins.trainer.critic_update import CriticUpdate
from rlm_plugins.trainer.passes import ForwardPasses, OldLogProbs
from rlm_plugins.trainer.rollout import Rollout


@dataclass
class MicroBatches:
    """The micro-batches that TRL buffers, as the forward passes group them."""

    context: TrainerContext
    passes: ForwardPasses
    old_logprobs: OldLogProbs

    def is_generation_due(self) -> bool:
        """Return True if TRL generates before the next micro-batch."""
        is_first = self.context.micro_step % self.context.micro_steps_per_generation == 0
        return is_first or self.context.buffered_inputs is None

    def is_empty(self) -> bool:
        """Return True if the next micro-batch is empty: its completions were moved to other micro-batches."""
        if self.is_generation_due():
            return False
        inputs = self.context.buffered_inputs[self.context.micro_step % self.context.args.steps_per_generation]
        return self.passes.portions(inputs) == []

    def build(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the micro-batches of a generation batch, regrouped by the forward passes."""
        for observer in self.context.observers:
            observer.micro_batches(micro_batches)
        return self.passes.regroup(micro_batches, self.steps())

    def steps(self) -> range:
        """Return this step; with old log-probs from its first pass, all steps on the same generation batch."""
        count = self.context.args.num_iterations if self.old_logprobs.come_from_update() else 1
        first = self.context.step - self.context.step % count
        return range(first, first + count)


@dataclass
class StepMeans:
    """Means of metrics over all portions and processes: of an optimizer step, or of an evaluation."""

    context: TrainerContext
    _sums: dict[str, torch.Tensor] = field(default_factory=dict, init=False)
    _largest: dict[str, torch.Tensor] = field(default_factory=dict, init=False)

    def reset(self) -> None:
        """Discard the sums of an interrupted step."""
        self._sums, self._largest = {}, {}

    def add(self, name: str, total: torch.Tensor, count: torch.Tensor) -> None:
        """Add to total and count of a metric whose mean is logged."""
        self._sums[name] = self._sums.get(name, 0.0) + self._over_processes(total, count)

    def add_extreme(self, name: str, value: torch.Tensor) -> None:
        """Keep the largest value of a metric ``…max``, the smallest of another; an infinite value does not count."""
        value = _sign(name) * value
        self._largest[name] = torch.maximum(value, self._largest.get(name, value))

    def log_alone(self, name: str, total: torch.Tensor, count: torch.Tensor) -> None:
        """Log the mean of one micro-batch."""
        sums = self._over_processes(total, count)
        self.context.log(name, (sums[0] / sums[1].clamp(min=1.0)).item())

    def log_extreme(self, name: str, value: torch.Tensor) -> None:
        """Log the extreme of all processes, if there is one."""
        largest = self.context.accelerator.gather(_sign(name) * value).max().item()
        if math.isfinite(largest):
            self.context.log(name, _sign(name) * largest)

    def _over_processes(self, total: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        """Return (2,) total and count of all processes."""
        local = torch.stack([total, count.to(total.dtype)]).detach()
        sums: torch.Tensor = self.context.accelerator.reduce(local, reduction="sum")
        return sums

    def flush(self) -> None:
        """Log the metrics of the optimizer step or the evaluation; those over no token are left out."""
        for name, sums in self._sums.items():
            # divided in float32, as TRL divides: its numbers to the last bit
            mean, count = torch.stack([sums[0] / sums[1].clamp(min=1.0), sums[1]]).tolist()
            if count > 0:
                self.context.log(name, mean)
        for name, largest in self._largest.items():
            self.log_extreme(name, _sign(name) * largest)
        self.reset()


def _sign(name: str) -> float:
    return 1.0 if name.endswith("max") else -1.0


TRL_NAMES = {
    "penalties/kl": "kl",
    "policy_loss/clipped_low": "clip_ratio/low_mean",
    "policy_loss/clipped_high": "clip_ratio/high_mean",
    "policy_loss/capped": "cispo_clip_ratio",
    "policy_loss/phi": "vespo/phi_seq_mean",
}
"""Our name → TRL's name."""
_REGION = "clip_ratio/region_mean"
_EXTREMES = {"policy_loss/clipped_low": "clip_ratio/low_min", "policy_loss/clipped_high": "clip_ratio/high_max"}


@dataclass
class PartMetrics:
    """Logs what the loss parts of one micro-batch report.

    Args:
        means: Means over processes and portions.
        mask: (B, T) True for tokens that enter the means.
        share: Share of these completions in those of the optimizer step.
        trl_mask: (B, T) True for tokens that enter TRL's mean of the micro-batch; None: that is not logged.
    """

    means: StepMeans
    mask: torch.Tensor
    share: torch.Tensor
    trl_mask: torch.Tensor | None = None
    _clipped: dict[str, torch.Tensor] = field(default_factory=dict, init=False)

    def __call__(self, name: str, x: torch.Tensor) -> None:
        """Log the mean of `x`, (B, T) per token or (B, 1) per sequence; the sum over the step of one number."""
        if x.dim() == 0:
            self.means.add(name, x, self.share)
            return
        self.means.add(name, torch.where(self.mask.bool(), x, 0.0).sum(), self.mask.sum())
        if name in TRL_NAMES:
            self.by_trl(TRL_NAMES[name], x)
        if name in _EXTREMES:
            self._by_trl_extreme(_EXTREMES[name], x)
            self._clipped[name] = x
            if len(self._clipped) == len(_EXTREMES):
                self.by_trl(_REGION, torch.stack([*self._clipped.values()]).amax(0))
                self._clipped.clear()

    def by_trl(self, name: str, x: torch.Tensor) -> None:
        """Log the mean over tokens, or over sequences for one value per sequence, under TRL's name."""
        self.means.add(name, *_total(x, self.mask, self.mask.any(1, keepdim=True)))
        if self.trl_mask is not None:
            rows = torch.ones_like(self.trl_mask[:, :1])
            self.means.log_alone(f"trl/{name}", *_total(x, self.trl_mask, rows))

    def _by_trl_extreme(self, name: str, x: torch.Tensor) -> None:
        self.means.add_extreme(name, _extreme(x, self.mask, _sign(name)))
        if self.trl_mask is not None:
            self.means.log_extreme(f"trl/{name}", _extreme(x, self.trl_mask, _sign(name)))


def _total(x: torch.Tensor, mask: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return sum and count of `x` over the tokens of `mask`, or over `rows` for one value per sequence."""
    mask = rows if x.shape[1] == 1 != mask.shape[1] else mask
    return torch.where(mask.bool(), x, 0.0).sum(), mask.sum()


def _extreme(x: torch.Tensor, mask: torch.Tensor, sign: float) -> torch.Tensor:
    """Return the largest (`sign` 1) or smallest (-1) mean of a sequence; infinite if none has tokens."""
    live = mask.any(1)
    shares = torch.where(mask.bool(), x, 0.0).sum(1) / mask.sum(1).clamp(min=1)
    none = torch.tensor(-torch.inf, device=mask.device)
    return sign * ((sign * shares).where(live, -torch.inf).amax() if len(live) else none)


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
        counted: torch.Tensor | None = None,
        is_stock: bool = False,
    ) -> Batch:
        """Return a micro-batch with the data of the loss phase.

        Metrics are over its `counted` sequences (B,); `is_stock`: TRL's means are logged beside them.
        """
        context, args = self.context, self.context.args
        metric_mask = inputs["mask"] if counted is None else inputs["mask"] * counted.unsqueeze(1)
        columns: dict[str, Any] = {name: inputs.get(column) for name, column in TRL_COLUMNS.items()}
        columns |= {name: inputs.get(name) for name in ("returns", "expected_logp", "old_values")}
        columns["old_logp"] = logp.detach() if columns["old_logp"] is None else columns["old_logp"]
        share = context.accumulation / args.steps_per_generation if context.is_training else 1  # of the generation
        rows, all_rows = len(inputs["group"]), inputs["num_sequences_all"] * share
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
            logp=logp,
            rollout_weight=inputs.get("importance_sampling_ratio"),  # type: ignore[arg-type]
            entropy=entropy,
            values=values,  # type: ignore[arg-type]
            **columns,
            num_tokens=inputs["num_tokens"].clamp(min=1.0) * share,
            num_sequences=inputs["num_sequences"].clamp(min=1.0) * share,
            num_sequences_all=all_rows,
            num_micro_batches=torch.tensor(num_micro_batches, device=logp.device),
            term_counts=unflatten_counts(inputs, share),
            log=PartMetrics(self.means, metric_mask, rows / all_rows, inputs["mask"] if is_stock else None),
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
        """Return the loss of a micro-batch, split into portions, all but the last backpropagated here."""
        for observer in self.context.observers:
            observer.micro_batch(inputs)
        portions = self.passes.portions(inputs)
        early, last = ([], inputs) if portions is None else (portions[:-1], portions[-1] if portions else None)
        accelerator = self.context.accelerator
        total = torch.zeros((), device=accelerator.device, requires_grad=last is None)
        for portion in early:
            with accelerator.no_sync(model):
                loss = self.of_portion(model, portion)
                with torch.autocast(loss.device.type, enabled=False):
                    accelerator.backward(loss)
            total = total + loss.detach()
        loss = total if last is None else total + self.of_portion(model, last)
        if self.context.is_training and accelerator.sync_gradients:
            self.means.flush()
        return loss

    def of_portion(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """Return the loss of completions that share a forward pass."""
        steps, is_first = self.micro_batches.steps(), self.old_logprobs.come_from_update()
        counted = self.passes.with_gradient(inputs, steps) if self.context.is_training else None
        live = counted if self.passes.skips_sequences else None
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
            old_logp = inputs.get("old_per_token_logps", 0.0)  # so the ratio of a skipped sequence is 1
            logp, entropy = logp.where(live.unsqueeze(1), old_logp), entropy * live.unsqueeze(1)
        differs = self.context.accumulation > 1 or counted is not None  # from TRL's mean of a micro-batch
        is_stock = differs and live is None and self.passes.keeps_micro_batches
        values = self.critic.for_loss(inputs, hidden)
        batch = self.batches.micro_batch(inputs, logp, entropy, values, counted, is_stock)
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
        batch.log.by_trl("entropy", entropy.detach())  # type: ignore[attr-defined]
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
