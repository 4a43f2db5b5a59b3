"""Micro-batches of an optimizer step: their construction, and the completions that need no forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from accelerate.utils import gather_object

from rlm_plugins.kernels.chunk_sizes import PRODUCTS
from rlm_plugins.packing import fallback_reasons as reasons
from rlm_plugins.packing.micro_batches import PORTIONS, Sizes, cut, full, joined, portioned
from rlm_plugins.packing.regroup import regroup, teaches
from rlm_plugins.packing.zero_advantage import silent
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.logprobs import LogProbs, prompt_completion
from rlm_plugins.trainer.old_logprobs import OldLogProbs


@dataclass
class MicroBatches:
    """Builds the micro-batches whose forward passes cost least."""

    context: TrainerContext
    logprobs: LogProbs
    old_logprobs: OldLogProbs
    labels: Sequence[str]
    has_critic: bool
    _no_gradient: tuple[int, bool] = field(default=(-1, False), init=False)

    def is_generation_due(self) -> bool:
        """Return True if TRL generates before the next micro-batch."""
        is_first = self.context.micro_step % self.context.micro_steps_per_generation == 0
        return is_first or self.context.buffered_inputs is None

    def is_empty(self) -> bool:
        """Return True if the next micro-batch has no completions left, because others took them."""
        if self.is_generation_due():
            return False
        return (
            self.context.buffered_inputs[self.context.micro_step % self.context.args.steps_per_generation].get(PORTIONS)
            == []
        )

    def build(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the micro-batches of a generation batch grouped by prompt, where the loss allows that."""
        if not self._may_regroup(micro_batches):
            return micro_batches
        accumulation, sizes = self.context.args.gradient_accumulation_steps, self._sizes(micro_batches)
        if sizes is None:
            return regroup(micro_batches, accumulation)
        return portioned(micro_batches, accumulation, sizes, skips=self._skips(), most=self._largest)

    def _sizes(self, micro_batches: list[dict[str, Any]]) -> Sizes | None:
        """Return the function that sizes micro-batches by tokens; None: by the recipe's number of completions."""
        speed, model = self.context.speed, self.context.model
        if reasons.by_number(speed, self.context.equation, self.context.args):
            return None
        ids, _, width = prompt_completion(micro_batches[0])
        if speed.max_tokens_per_micro_batch is None:
            num_parameters = sum(x.numel() for x in model.parameters())
            return partial(joined, rows=len(ids), budget=PRODUCTS / num_parameters)
        is_auto = speed.max_tokens_per_micro_batch == "auto"
        budget = full(len(ids), ids.shape[1] - width, width) if is_auto else float(speed.max_tokens_per_micro_batch)
        return partial(cut, budget=budget)

    def _largest(self, count: int) -> int:
        return max(gather_object([count])) if self.context.accelerator.num_processes > 1 else count

    def _may_regroup(self, micro_batches: list[dict[str, Any]]) -> bool:
        """Return True if the loss is a sum over the optimizer step and every process packs all completions."""
        if reasons.at_random(self.context.speed, self.context.equation, self.context.args, packed=True):
            return False
        padded = [not self.logprobs.is_padding_free(*prompt_completion(piece)) for piece in micro_batches]
        return not self._largest(sum(padded))

    def informative(self, inputs: dict[str, Any]) -> torch.Tensor | None:
        """Return (B,) True for the completions that need a forward pass; None: all do."""
        return teaches(inputs["advantages"]) if self._skips() else None

    def _skips(self) -> bool:
        """Return True if zero-advantage completions have no gradient in this step."""
        context = self.context
        if not context.is_training or reasons.all_read(context.speed, context.args, critic=self.has_critic):
            return False
        step = context.step
        if self._no_gradient[0] != step:  # a scheduled coefficient may have changed
            self._no_gradient = step, all(silent(context.equation, s, self.labels) for s in self._steps(step))
        return self._no_gradient[1]

    def _steps(self, step: int) -> range:
        """Return this step; with old log-probs from its first pass, all steps on the same generation batch."""
        count = self.context.args.num_iterations if self.old_logprobs.come_from_update() else 1
        first = step - step % count
        return range(first, first + count)


@dataclass
class StepMeans:
    """Means of metrics over all processes, and over all portions of an optimizer step."""

    context: TrainerContext
    _held: dict[str, torch.Tensor] | None = field(default=None, init=False)

    def reset(self) -> None:
        """Discard the sums of an interrupted step."""
        self._held = None

    def hold(self) -> None:
        """Sum up until :meth:`release`: portions have different numbers of tokens."""
        self._held = self._held or {}

    def add(self, name: str, total: torch.Tensor, count: torch.Tensor) -> None:
        """Log total / count over all processes, at once or with the other portions of the step."""
        both = torch.stack([total, count.to(total.dtype)]).detach()
        sums = self.context.accelerator.reduce(both, reduction="sum")
        if self._held is None:
            self._log(name, sums)
        else:
            self._held[name] = self._held.get(name, 0.0) + sums

    def release(self) -> None:
        """Log the means of the optimizer step."""
        for name, sums in (self._held or {}).items():
            self._log(name, sums)
        self._held = None

    def _log(self, name: str, sums: torch.Tensor) -> None:
        mean, count = torch.stack([sums[0] / sums[1].clamp(min=1.0), sums[1]]).tolist()  # one device synchronization
        if count > 0 or not self.context.speed.skip_zero_advantage:  # without any live sequence there is no mean
            self.context.log(name, mean)
