"""Forward passes without padding, on micro-batches that cost least."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate.utils import gather_object

from rlm_fast import tuning
from rlm_fast.features import Features
from rlm_fast.fused_layers import fuse_lora, fuse_mlps
from rlm_fast.pack import Layout, layouts
from rlm_fast.packed_forward import PackedForward, install_attention, model_inputs, packed_statistics
from rlm_fast.speed import Speed
from rlm_fast.token_budget import (
    PORTIONS,
    SplitRule,
    group_by_prompt,
    has_advantage,
    split_into_portions,
    split_rule,
    zero_advantage_has_no_gradient,
)
from rlm_plugins.models.critic import Critic
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.passes import ForwardPasses, LogpsAndEntropies, Rows, prompt_completion

logger = logging.getLogger(__name__)


class PackedPasses(ForwardPasses):
    """Passes without padding and with shared prompts, where that is exact; else those of TRL.

    Attributes:
        features: Fast paths, and why the others are off.
    """

    def __init__(self, speed: Speed, context: TrainerContext, trl_forward: Callable[..., LogpsAndEntropies]) -> None:
        super().__init__(context, trl_forward)
        self.reuses_old_logprobs = speed.reuse_old_logprobs
        self.features = Features(
            speed,
            context.equation,
            context.args,
            context.needs,
            sharded=context.is_sharded,
            load_balancing=context.trainer.aux_loss_enabled,
            critic=context.has_critic,
        )
        self.skips_sequences = self.features.skip_zero_advantage.on
        self.keeps_micro_batches = not self.features.group_micro_batches.on
        self._packed: PackedForward | None = None
        self._no_gradient: tuple[range, bool] = (range(0), False)
        fuse_lora(context.model, enabled=self.features.fused_lora.on)
        fuse_mlps(context.model, enabled=self.features.fused_lora.on)

    # -- the policy

    def compute(
        self,
        model: Any,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        logits_to_keep: int,
        batch_size: int | None = None,
        compute_entropy: bool = False,
        compute_aux_loss: bool = False,
        live: Sequence[bool] | None = None,
        **images: Any,
    ) -> LogpsAndEntropies:
        rows = input_ids, attention_mask, logits_to_keep
        if not self.is_padding_free(*rows) or any(x is not None for x in images.values()):
            return self._trl_forward(model, *rows, batch_size, compute_entropy, compute_aux_loss, **images)
        budget = None if batch_size is None else batch_size * input_ids.shape[1]
        temperature = self.context.temperature
        with self.context.accelerator.autocast():
            logp, entropy = self._packed_forward()(
                model, *rows, temperature=temperature, with_entropy=compute_entropy, live=live, budget=budget
            )
        return logp, entropy if compute_entropy else None, None

    def is_padding_free(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int) -> bool:
        """Return True if these sequences are packed, which requires unsharded weights and a supported model."""
        is_on = self.features.padding_free.on
        return is_on and self._packed_forward().supports(input_ids, attention_mask, logits_to_keep)

    def vocab_statistics(self, rows: Rows, batch_size: int) -> dict[str, torch.Tensor]:
        """Return name → (B, T) of the statistics over the vocabulary, without gradient."""
        if not self.is_padding_free(*rows):
            return super().vocab_statistics(rows, batch_size)
        packed = self._layouts(rows, budget=batch_size * rows[0].shape[1])
        return packed_statistics(self.context.model, packed, temperature=self.context.temperature)

    def _layouts(self, rows: Rows, budget: int | None = None) -> Iterator[Layout]:
        return layouts(*rows, budget=budget, relative=self._packed_forward().relative)

    def _packed_forward(self) -> PackedForward:
        """Return the padding-free pass; built at its first use, after the model was moved to its device."""
        if self._packed is None:
            loss_parts = [self.context.equation.policy_loss, *self.context.equation.penalties]
            with self.context.accelerator.autocast():
                self._packed = PackedForward(
                    self.context.accelerator.unwrap_model(self.context.model),
                    self.padded,
                    temperature=self.context.temperature,
                    entropy_gradient=any("entropy" in p.part.data for p in loss_parts),
                )
            if self._packed.reason is not None:
                logger.warning("padded forward passes: %s", self._packed.reason)
        return self._packed

    # -- the critic

    def values(self, critic: Critic, rows: Rows, part: slice = slice(None)) -> torch.Tensor:
        """Return the critic's values (B, T) of some of the sequences; 0 at padding."""
        if not self.is_padding_free(*rows):
            return super().values(critic, rows, part)
        (layout,) = self._layouts((rows[0][part], rows[1][part], rows[2]))
        install_attention(critic.trunk)
        with critic.active():
            hidden = critic.trunk(**model_inputs(layout)).last_hidden_state
        return layout.unpack(critic.values_of(hidden[0, layout.logits_to_keep]))

    def of_hidden(
        self, function: Callable[[torch.Tensor], torch.Tensor], hidden: torch.Tensor, rows: Rows
    ) -> torch.Tensor:
        """Return `function` (B, T, …) of the hidden states before each token, left by a pass over `rows`."""
        if not self.is_padding_free(*rows):
            return super().of_hidden(function, hidden, rows)
        (layout,) = self._layouts(rows)
        return layout.unpack(function(hidden[0, layout.logits_to_keep]))

    # -- micro-batches

    def regroup(self, micro_batches: list[dict[str, Any]], steps: range) -> list[dict[str, Any]]:
        """Return the micro-batches grouped by prompt, where the loss allows that."""
        if not self._may_regroup(micro_batches):
            return micro_batches
        step_size, rule = self.context.args.gradient_accumulation_steps, self._split_rule(micro_batches)
        if rule is None:
            return group_by_prompt(micro_batches, step_size)
        return split_into_portions(
            micro_batches,
            step_size,
            rule,
            skip_zero_advantage=self.skips_sequences and self._zero_has_no_gradient(steps),
            relative=self._packed_forward().relative,
            max_over_ranks=self._max_over_ranks,
        )

    def portions(self, inputs: dict[str, Any]) -> list[dict[str, Any]] | None:
        return inputs.get(PORTIONS)

    def with_gradient(self, inputs: dict[str, Any], steps: range) -> torch.Tensor | None:
        """Return (B,) True for the completions that have a gradient; None: all of them."""
        return has_advantage(inputs["advantages"]) if self._zero_has_no_gradient(steps) else None

    def _may_regroup(self, micro_batches: list[dict[str, Any]]) -> bool:
        """Return True if the loss is a sum over the optimizer step and every process packs all completions."""
        if not self.features.group_micro_batches.on:
            return False
        padded = [not self.is_padding_free(*prompt_completion(inputs)) for inputs in micro_batches]
        return not self._max_over_ranks(sum(padded))

    def _split_rule(self, micro_batches: list[dict[str, Any]]) -> SplitRule | None:
        """Return the rule that sizes micro-batches by tokens; None: by the recipe's number of completions."""
        if not self.features.dynamic_micro_batches.on:
            return None
        ids, _, width = prompt_completion(micro_batches[0])
        return split_rule(
            self.features.speed.max_tokens_per_micro_batch,
            num_sequences=len(ids),
            prompt_width=ids.shape[1] - width,
            completion_width=width,
            num_parameters=sum(x.numel() for x in self.context.model.parameters()),
        )

    def _max_over_ranks(self, count: int) -> int:
        return max(gather_object([count])) if self.context.accelerator.num_processes > 1 else count

    def _zero_has_no_gradient(self, steps: range) -> bool:
        """Return True if zero-advantage completions have no gradient in these optimizer steps, at any speed."""
        if any(condition for condition, _ in self.features.reasons_to_keep):
            return False
        if self._no_gradient[0] != steps:  # a scheduled coefficient may have changed
            equation, labels = self.context.equation, self.context.source_labels
            self._no_gradient = steps, all(zero_advantage_has_no_gradient(equation, s, labels) for s in steps)
        return self._no_gradient[1]

    # -- a copy of the policy

    def preparation(self) -> Preparation:
        kernels = {key: choice.value for key, choice in tuning.CHOICES.items()}
        return Preparation(self.features.fused_lora.on, kernels)


@dataclass(frozen=True)
class Preparation:
    """Prepares a copy of the policy: the same kernels as here."""

    fused: bool
    kernels: Mapping[str, int] = field(default_factory=dict)

    def __call__(self, model: Any) -> None:
        for key, value in self.kernels.items():
            if key in tuning.CHOICES:
                tuning.CHOICES[key].set(value)
        fuse_lora(model, enabled=self.fused)
        fuse_mlps(model, enabled=self.fused)
