"""Micro-batches of an optimizer step: their construction, and the completions that need no forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate.utils import gather_object
from rlm_fast.prompt_groups import group_by_prompt, has_advantage
from rlm_fast.token_budget import PORTIONS, SplitRule, split_into_portions, split_rule
from rlm_fast.zero_advantage import zero_advantage_has_no_gradient

from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.logprobs import LogProbs, prompt_completion
from rlm_plugins.trainer.old_logprobs import OldLogProbs


@dataclass
class MicroBatches:
    """Builds micro-batches such that their forward passes cost least: by prompt, and by number of tokens."""

    context: TrainerContext
    logprobs: LogProbs
    old_logprobs: OldLogProbs
    labels: Sequence[str]
    _no_gradient: tuple[int, bool] = field(default=(-1, False), init=False)

    def is_generation_due(self) -> bool:
        """Return True if TRL generates before the next micro-batch."""
        is_first = self.context.micro_step % self.context.micro_steps_per_generation == 0
        return is_first or self.context.buffered_inputs is None

    def is_empty(self) -> bool:
        """Return True if the next micro-batch is empty: its completions were moved to other micro-batches."""
        if self.is_generation_due():
            return False
        inputs = self.context.buffered_inputs[self.context.micro_step % self.context.args.steps_per_generation]
        return inputs.get(PORTIONS) == []  # type: ignore[no-any-return]

    def build(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the micro-batches of a generation batch grouped by prompt, where the loss allows that."""
        for observer in self.context.observers:
            observer.micro_batches(micro_batches)
        if not self._may_regroup(micro_batches):
            return micro_batches
        step_size, rule = self.context.args.gradient_accumulation_steps, self._split_rule(micro_batches)
        if rule is None:
            return group_by_prompt(micro_batches, step_size)
        return split_into_portions(
            micro_batches,
            step_size,
            rule,
            skip_zero_advantage=self._skips_zero_advantage(),
            relative=self.logprobs.is_relative(),
            max_over_ranks=self._max_over_ranks,
        )

    def _split_rule(self, micro_batches: list[dict[str, Any]]) -> SplitRule | None:
        """Return the rule that sizes micro-batches by tokens; None: by the recipe's number of completions."""
        features = self.context.features
        if not features.dynamic_micro_batches.on:
            return None
        ids, _, width = prompt_completion(micro_batches[0])
        return split_rule(
            features.speed.max_tokens_per_micro_batch,
            num_sequences=len(ids),
            prompt_width=ids.shape[1] - width,
            completion_width=width,
            num_parameters=sum(x.numel() for x in self.context.model.parameters()),
        )

    def _max_over_ranks(self, count: int) -> int:
        return max(gather_object([count])) if self.context.accelerator.num_processes > 1 else count

    def _may_regroup(self, micro_batches: list[dict[str, Any]]) -> bool:
        """Return True if the loss is a sum over the optimizer step and every process packs all completions."""
        if not self.context.features.group_micro_batches.on:
            return False
        padded = [not self.logprobs.is_padding_free(*prompt_completion(inputs)) for inputs in micro_batches]
        return not self._max_over_ranks(sum(padded))

    def needs_forward(self, inputs: dict[str, Any]) -> torch.Tensor | None:
        """Return (B,) True for the completions that need a forward pass; None: all of them."""
        return has_advantage(inputs["advantages"]) if self._skips_zero_advantage() else None

    def _skips_zero_advantage(self) -> bool:
        """Return True if zero-advantage completions have no gradient in this step."""
        context = self.context
        if not context.is_training or not context.features.skip_zero_advantage.on:
            return False
        step = context.step
        if self._no_gradient[0] != step:  # a scheduled coefficient may have changed
            checks = (zero_advantage_has_no_gradient(context.equation, s, self.labels) for s in self._steps(step))
            self._no_gradient = step, all(checks)
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
    _sums: dict[str, torch.Tensor] | None = field(default=None, init=False)

    def reset(self) -> None:
        """Discard the sums of an interrupted step."""
        self._sums = None

    def accumulate(self) -> None:
        """Accumulate sums until :meth:`flush`: portions have different numbers of tokens."""
        self._sums = self._sums or {}

    def add(self, name: str, total: torch.Tensor, count: torch.Tensor) -> None:
        """Log total / count over all processes, at once or with the other portions of the step."""
        local = torch.stack([total, count.to(total.dtype)]).detach()
        sums = self.context.accelerator.reduce(local, reduction="sum")
        if self._sums is None:
            self._log(name, sums)
        else:
            self._sums[name] = self._sums.get(name, 0.0) + sums

    def flush(self) -> None:
        """Log the means of the optimizer step, and clear the sums."""
        for name, sums in (self._sums or {}).items():
            self._log(name, sums)
        self._sums = None

    def _log(self, name: str, sums: torch.Tensor) -> None:
        mean, count = torch.stack([sums[0] / sums[1].clamp(min=1.0), sums[1]]).tolist()  # one device synchronization
        if count > 0 or not self.context.features.speed.skip_zero_advantage:  # the mean over no sequence is undefined
            self.context.log(name, mean)
