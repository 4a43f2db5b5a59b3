"""Scoring phase: from generated completions to advantages, once per generation batch and over all processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.dispatch import flatten_counts, term_counts, update_part
from rlm_plugins.equation.step import compute_advantages, shape_and_filter
from rlm_plugins.errors import PartError
from rlm_plugins.rewards.columns import NO_LOGS
from rlm_plugins.rewards.fault import raise_on_all_processes
from rlm_plugins.rewards.trl_adapter import compute_scores
from rlm_plugins.rollout.dynamic_sampling import RefillBuffer, SamplingRound, has_batch_dim, pad_sequences
from rlm_plugins.trainer.context import TRL_COLUMNS, TrainerContext
from rlm_plugins.trainer.critic_update import CriticUpdate
from rlm_plugins.trainer.generation import PolicyGeneration, Prompts
from rlm_plugins.trainer.passes import ForwardPasses, OldLogProbs, loss_mask
from rlm_plugins.trainer.rewards import RewardPrefetch, Rewards
from rlm_plugins.trainer.rollout import Rollout
from rlm_plugins.workers.distributed import gather_lists, rank_slice


@dataclass
class PartTools:
    """Provides the scoring data that are lists, and functions on extra completions.

    A scoring part runs on every process with the completions of all processes, so all make the same calls. Each
    computes its share and receives all results. The extra completions are not trained on.
    """

    context: TrainerContext
    prompts: Prompts
    generation: PolicyGeneration
    passes: ForwardPasses
    rewards: Rewards
    prefetch: RewardPrefetch

    def data(self, out: dict[str, Any]) -> dict[str, Any]:
        """Return name → lists of all processes, where a scoring part names them, and the functions."""

        def ids(name: str) -> list[list[int]]:
            rows = zip(out[f"{name}_ids"], out[f"{name}_mask"].bool(), strict=True)
            return [row[mask].tolist() for row, mask in rows]

        lists: dict[str, Callable[[], list[Any]]] = {
            "prompts": lambda: [row["prompt"] for row in self.prompts.inputs],
            "inputs": lambda: list(self.prompts.inputs),
            "prompt_ids": lambda: ids("prompt"),
            "completion_ids": lambda: ids("completion"),
        }
        return {
            name: gather_lists(local_list())
            for name, local_list in lists.items()
            if self.context.is_observed(name) or self.context.needs.for_scoring(name)
        } | {
            "logprobs_of": self._observed("logprobs_of", self.logprobs_of),
            "generate": self._observed("generate", self.generate),
            "rewards_of": self._observed("rewards_of", self.rewards_of),
            "tokenizer": self.context.tokenizer,
            "log": lambda name, x: self.context.log(name, float(x)),
        }

    def _observed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, whose results are passed to the observers."""

        def call(*args: Any, **options: Any) -> Any:
            result = function(*args, **options)
            for observer in self.context.observers:
                observer.called(name, result)
            return result

        return call if self.context.observers else function

    def logprobs_of(self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]) -> torch.Tensor:
        """Return (n, longest) log-probs under the model with its current adapters; may carry a gradient.

        Every process computes all of them: a part that trains on them shares the work itself.
        """
        _check_lengths("logprobs_of", prompt_ids, completion_ids)
        logps: torch.Tensor = self.passes.of(self.context.model, self._padded(prompt_ids, completion_ids))[0]
        return logps

    def statistics_of(
        self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probs and entropies (n, longest) under the model, without gradient; each process its own."""
        _check_lengths("token_statistics", prompt_ids, completion_ids)
        inputs, size = self._padded(prompt_ids, completion_ids), self.context.args.per_device_train_batch_size
        with torch.no_grad():
            logp, entropy, _ = self.passes.of(self.context.model, inputs, size, compute_entropy=True)
        return logp, entropy

    def _padded(
        self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
    ) -> dict[str, torch.Tensor]:
        prompts = [torch.tensor(ids).long() for ids in prompt_ids]
        completions = [torch.tensor(ids).long() for ids in completion_ids]
        inputs = pad_sequences(prompts, completions, self.context.tokenizer.pad_token_id)
        return {name: x.to(self.context.accelerator.device) for name, x in inputs.items()}

    def generate(
        self, prompts: Sequence[Any], prefixes: Sequence[Sequence[int]] | None = None, *, greedy: bool = False
    ) -> list[list[int]]:
        """Return token ids that the policy generates, in batches of the size of a generation batch."""
        starts = [[]] * len(prompts) if prefixes is None else prefixes
        _check_lengths("generate", prompts, starts)
        local, generated = rank_slice(len(prompts)), []
        size = self.context.args.per_device_train_batch_size * self.context.args.steps_per_generation
        for first in range(0, local.stop - local.start, size):  # equally often on every process
            rows = slice(local.start + first, min(local.start + first + size, local.stop))
            generated += self.generation.generate(prompts[rows], starts[rows], greedy=greedy)[0]
        return gather_lists(generated)

    def rewards_of(
        self, prompts: Sequence[Any], completion_ids: Sequence[Sequence[int]], inputs: Sequence[Mapping[str, Any]]
    ) -> torch.Tensor:
        """Return (n,) Σ weight · reward, NaN if no reward applies; only failures are logged.

        Raises:
            Fault: Of a reward that stops the run; on every process.
        """
        _check_lengths("rewards_of", prompts, completion_ids, inputs)
        local = rank_slice(len(prompts))
        scores = gather_lists(self.reward_table(prompts[local], completion_ids[local], inputs[local]))
        per_function = torch.tensor(scores, device=self.context.accelerator.device)
        return self.rewards.weighted(per_function.view(-1, len(self.context.rewards)))

    def reward_table(
        self, prompts: Sequence[Any], completion_ids: Sequence[Sequence[int]], inputs: Sequence[Mapping[str, Any]]
    ) -> list[list[float]]:
        """Return each reward of some completions; NaN in a row that a failure excludes."""
        faults, skipped = self.rewards.faults, set[int]()
        if faults is not None:
            faults.clear()
        state = self.prefetch.arguments()["trainer_state"]
        arguments = {**NO_LOGS, "trainer_state": state}
        columns = self.prefetch.columns(prompts, completion_ids, inputs, **arguments) if prompts else {}
        scores = [compute_scores(reward, columns) if prompts else [] for reward in self.prefetch.functions]
        if faults is not None:
            raise_on_all_processes(faults.stop)
            skipped = faults.skipped
            records = gather_lists(faults.records)
            if records and self.rewards.log_faults is not None:
                self.rewards.log_faults(records)
        rows = [[torch.nan if x is None else x for x in row] for row in zip(*scores, strict=True)]
        return [[torch.nan] * len(row) if i in skipped else row for i, row in enumerate(rows)]


def _check_lengths(function: str, *columns: Sequence[Any]) -> None:
    if len(set(map(len, columns))) > 1:
        lengths = ", ".join(str(len(column)) for column in columns)
        raise PartError(f"called `{function}` with lists of {lengths} entries", allowed="one entry per row in each")


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
        device, count = out["completion_ids"].device, len(out["completion_ids"])
        out.setdefault("policy_version", torch.full((count,), self.context.step, device=device))
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
        computed = self.old_logprobs.for_scoring(out)
        return Batch(
            group=torch.arange(len(rewards), device=rewards.device) // context.group_size,
            mask=gather(loss_mask(out)).bool(),
            truncated=gather(torch.tensor(self.rewards.truncated, device=rewards.device)),
            prompt_index=self.prompts.index,  # type: ignore[arg-type]
            sources=self.rollout.by_source(gather(out.get("source")), len(rewards)),
            max_completion_length=args.max_completion_length,
            step=context.step,
            rewards=rewards,
            named_rewards={r.label: self.rewards.per_function[:, i] for i, r in enumerate(context.rewards)},
            turn_rewards=gather(out.get("turn_rewards")),
            **{name: gather(out.get(column)) for name, column in TRL_COLUMNS.items()},
            values=gather(self.critic.before_update(out)),
            **{name: gather(x) for name, x in computed.items()},
            **self.tools.data(out),
        )

    # -- metrics

    def _log_filters(self, batch: Batch) -> None:
        if self.context.equation.shapers:
            self.context.log("shapers/reward", batch.rewards.nanmean().item())
        is_read = any("ref_logp" in shaper.part.required_data for shaper in self.context.equation.shapers)
        if is_read and batch.old_logp is not None and batch.ref_logp is not None:
            drift = (batch.old_logp - batch.ref_logp)[batch.mask]
            self.context.log("kl", drift.mean().item() if drift.numel() else 0.0)  # TRL's name
        if self.context.equation.filters:
            trained = batch.mask.any(1)
            self.context.log("filters/kept", ((trained & batch.keep_mask).sum() / trained.sum().clamp(min=1)).item())
        self.rollout.log_sources(batch)

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
