"""Scoring phase: from generated completions to advantages, once per generation batch and over all processes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.dispatch import update_part
from rlm_plugins.loss_term import flatten_counts, term_counts
from rlm_plugins.rollout.dynamic_sampling import RefillBuffer, SamplingRound, has_batch_dim
from rlm_plugins.step import compute_advantages, shape_and_filter
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.critic_update import CriticUpdate
from rlm_plugins.trainer.old_logprobs import OldLogProbs
from rlm_plugins.trainer.part_tools import PartTools
from rlm_plugins.trainer.passes import loss_mask
from rlm_plugins.trainer.policy_drift import PolicyDrift
from rlm_plugins.trainer.prompts import Prompts
from rlm_plugins.trainer.rewards import Rewards
from rlm_plugins.trainer.rollout import Rollout

logger = logging.getLogger(__name__)
Generate = Callable[[list[dict[str, Any]]], dict[str, Any]]
"""TRL's `_generate_and_score_completions`: examples → TRL's dictionary."""
FOR_LOSS = ("mask", "group", "truncated", "rewards", "returns", "advantages", "expected_logp")
"""Data of the scored batch that the loss phase needs."""


@dataclass
class Scoring:
    """Scoring phase of a generation batch."""

    context: TrainerContext
    prompts: Prompts
    rollout: Rollout
    old_logprobs: OldLogProbs
    drift: PolicyDrift
    critic: CriticUpdate
    rewards: Rewards
    tools: PartTools
    completions_log: dict[str, Any]  # TRL's `_logs`, which `log_completions` prints

    def run(self, inputs: list[dict[str, Any]], trl_generate: Generate) -> dict[str, Any]:
        """Return TRL's dictionary for the completions of this process, with the advantages of the equation."""
        context, local = self.context, self.context.local_rows(len(inputs))
        for observer in context.observers:
            observer.begin_generation()
        if context.equation.refill and context.is_training:
            out, batch = self._sample_until_full(inputs, trl_generate, context.equation.refill)
        else:
            out, batch = self._sample(inputs, trl_generate)
        scored = compute_advantages(batch, context.equation)
        for observer in context.observers:
            observer.scored(scored, self.rollout.turn_ends())
        if context.is_training:
            for part in context.learners:
                update_part(part, scored)
        width = out["completion_ids"].shape[1]
        for name in FOR_LOSS:
            value = getattr(scored, name)
            if value is not None:
                out[name] = value[local][:, :width] if value.dim() == 2 else value[local]
        if scored.values is not None:
            out["old_values"] = scored.values[local][:, :width]
        out["global_index"] = torch.arange(local.start, local.stop, device=scored.mask.device)
        out["num_tokens"], out["num_sequences"] = scored.mask.sum().float(), scored.mask.any(1).sum().float()
        out["num_sequences_all"] = torch.tensor(float(len(scored.mask)), device=scored.mask.device)
        out |= flatten_counts(term_counts(scored, context.equation.terms()))
        self._log_advantages(scored)
        self.critic.log(scored)
        return out

    def _sample(self, inputs: list[dict[str, Any]], trl_generate: Generate) -> tuple[dict[str, Any], Batch]:
        """Return one generation batch: TRL's dictionary of this process, and the filtered batch of all."""
        inputs = self.prompts.next(inputs)
        self.old_logprobs.start_batch()
        out = trl_generate(inputs)
        for observer in self.context.observers:
            out |= observer.sampled(out)
        out |= self.rollout.tensors(out["completion_ids"])
        batch = self.batch(out)
        self._notify_scoring(batch, is_shaped=False)
        self.rewards.log(batch)
        batch = shape_and_filter(batch, self.context.equation)
        self._log_filters(batch)
        if self.context.sampler is not None and self.context.is_training:
            update_part(self.context.sampler, batch)
        return out, batch

    def _sample_until_full(
        self, inputs: list[dict[str, Any]], trl_generate: Generate, rounds: int
    ) -> tuple[dict[str, Any], Batch]:
        """Repeat :meth:`_sample` until every group passes the filters, at most `rounds` times (dynamic sampling).

        Groups are chosen in the order of all processes, so the choice does not depend on their number.
        """
        args, gather = self.context.args, self.context.gather_rows
        buffer = RefillBuffer(args.generation_batch_size // args.num_generations, self.context.tokenizer.pad_token_id)
        while not buffer.full and buffer.rounds < rounds:
            for column in self._columns().values():
                column.clear()  # the log of this round alone
            out, batch = self._sample(inputs, trl_generate)
            out = {name: gather(x, name) if has_batch_dim(x) else x for name, x in out.items()}
            buffer.add(SamplingRound(out, batch, {name: list(column) for name, column in self._columns().items()}))
        self._log_rounds(buffer)
        complete, local = buffer.finish(), self.context.local_rows(len(inputs))
        for name, column in self._columns().items():
            column.clear()
            column.extend(complete.columns.get(name, ()))
        self.rewards.texts = complete.columns["prompt"][local], complete.columns["completion"][local]
        out = {name: x[local] if has_batch_dim(x) else x for name, x in complete.out.items()}
        self._notify_scoring(complete.batch, is_shaped=True)
        out["num_items_in_batch"] = (complete.batch.mask & complete.batch.keep_mask.unsqueeze(1)).sum()
        return out, complete.batch

    def _notify_scoring(self, batch: Batch, *, is_shaped: bool) -> None:
        for observer in self.context.observers:
            observer.scoring(batch, is_shaped=is_shaped)

    def _columns(self) -> dict[str, Any]:
        """Return name → column of TRL's log of completions."""
        columns = {name: self.completions_log[name] for name in ("prompt", "completion", "advantages")}
        for section in ("rewards", "extra"):
            columns |= {f"{section}/{name}": column for name, column in self.completions_log[section].items()}
        return columns

    def batch(self, out: dict[str, Any]) -> Batch:
        """Return the completions of all processes with the data that scoring parts request."""
        context, gather = self.context, self.context.gather_rows
        args, rewards = context.args, self.rewards.total()
        generations = args.num_generations if context.is_training else args.num_generations_eval or args.num_generations
        computed = self.old_logprobs.for_scoring(out)
        return Batch(
            group=torch.arange(len(rewards), device=rewards.device) // generations,
            mask=gather(loss_mask(out)).bool(),
            truncated=gather(torch.tensor(self.rewards.truncated, device=rewards.device)),
            prompt_index=self.prompts.index,  # type: ignore[arg-type]
            sources=self.rollout.by_source(gather(out.get("source")), len(rewards)),
            max_completion_length=args.max_completion_length,
            step=context.step,
            rewards=rewards,
            named_rewards={r.label: self.rewards.per_function[:, i] for i, r in enumerate(context.rewards)},
            old_logp=gather(out.get("old_per_token_logps")),
            ref_logp=gather(out.get("ref_per_token_logps")),
            policy_drift=self.drift.measure(out, self.prompts.index),  # type: ignore[arg-type]
            turn_rewards=gather(out.get("turn_rewards")),
            rollout_logp=gather(out.get("sampling_per_token_logps")),
            values=gather(self.critic.before_update(out)),
            **{name: gather(x) for name, x in computed.items()},
            **self.tools.data(out),
        )

    # -- metrics

    def _log_filters(self, batch: Batch) -> None:
        if self.context.equation.shapers:
            self.context.log("shapers/reward", batch.rewards.nanmean().item())
        if any("ref_logp" in shaper.part.required_data for shaper in self.context.equation.shapers):
            self._log_reward_kl(batch)
        if self.context.equation.filters:
            trained = batch.mask.any(1)
            self.context.log("filters/kept", ((trained & batch.keep_mask).sum() / trained.sum().clamp(min=1)).item())
        self.rollout.log_sources(batch)

    def _log_reward_kl(self, batch: Batch) -> None:
        """Log the KL in the reward under TRL's name, if a shaper reads both log-probs."""
        if batch.old_logp is not None and batch.ref_logp is not None:
            drift = (batch.old_logp - batch.ref_logp)[batch.mask]
            self.context.log("kl", drift.mean().item() if drift.numel() else 0.0)

    def _log_rounds(self, buffer: RefillBuffer) -> None:
        self.context.log("dynamic_sampling/rounds", buffer.rounds)
        self.context.log("refill/full", buffer.filled / buffer.groups)
        if not buffer.full and self.context.accelerator.is_main_process:
            result = f"{buffer.filled} of {buffer.groups} groups passed the filters after {buffer.rounds} rounds"
            logger.warning("%s: the step is taken on those (step %d)", result, self.context.step + 1)

    def _log_advantages(self, scored: Batch) -> None:
        advantages = scored.advantages.expand(scored.mask.shape)[scored.mask]
        advantages = advantages if advantages.numel() else advantages.new_zeros(1)
        self.context.log("advantage/abs_mean", advantages.abs().mean().item())
        self.context.log("advantage/std", advantages.std(correction=0).item())
        self.context.log("advantage/nonzero", (advantages != 0).float().mean().item())
        column = self.completions_log["advantages"]
        for _ in range(min(len(column), len(scored.advantages))):
            column.pop()  # TRL's advantages, which the loss does not use
        column.extend(scored.advantages.mean(1).tolist())
