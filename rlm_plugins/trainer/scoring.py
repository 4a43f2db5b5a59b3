"""How good the rows are: once per generation, over all processes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.dispatch import select, update_part
from rlm_plugins.rollout.collector import RolloutCollector
from rlm_plugins.rollout.dynamic_sampling import Draw, FullBatch, has_rows
from rlm_plugins.step import compute_advantages, shape_and_filter
from rlm_plugins.trainer.logprobs import loss_mask
from rlm_plugins.trainer.part_tools import Trying

logger = logging.getLogger(__name__)
Observer = Callable[[int, Sequence[Any], Sequence[Any], Batch], None]


class Scoring(Trying):
    """The same, with the advantages of the equation.

    Args:
        observer: Is shown every generation batch of this process, scored: (step, prompts, completions, batch).
    """

    def __init__(self, *, observer: Observer | None = None, **rest: Any) -> None:
        self._observer = observer
        super().__init__(**rest)

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        mine = self._mine(len(inputs))
        if self.equation.refill and self.model.training:
            out, batch = self._refilled(inputs, self.equation.refill)
        else:
            out, batch = self._drawn(inputs)
        scored = compute_advantages(batch, self.equation)
        if self.model.training:
            for part in self._learners():
                update_part(part, scored)
        width = out["completion_ids"].shape[1]
        for name in ("mask", "group", "truncated", "rewards", "returns", "advantages", "expected_logp"):
            value = getattr(scored, name)
            if value is not None:
                out[name] = value[mine][:, :width] if value.dim() == 2 else value[mine]
        if scored.values is not None:
            out["old_values"] = scored.values[mine][:, :width]
        out["row"] = torch.arange(mine.start, mine.stop, device=scored.mask.device)
        out["tokens"], out["rows"] = scored.mask.sum().float(), scored.mask.any(1).sum().float()
        out["all_rows"] = torch.tensor(float(len(scored.mask)), device=scored.mask.device)
        self._log_advantages(scored)
        self._log_critic(scored)
        if self._observer is not None:
            self._observer(self.state.global_step, *self._texts, select(scored, mine))
        return out

    def _drawn(self, inputs: list[dict[str, Any]]) -> tuple[dict[str, Any], Batch]:
        """One generation: TRL's dictionary for the rows of this process, and the rows of all, sifted."""
        inputs = self._next_problems(inputs)
        self._inputs, self._written = inputs, None
        self._old_is_next = self._reads_old()
        out = super()._generate_and_score_completions(inputs)
        if self._written is not None:
            out |= self._said_of_rows(self._written, out["completion_ids"])
        batch = self._scoring_batch(out)
        self._log_rewards(batch)
        batch = shape_and_filter(batch, self.equation)
        self._log_sieve(batch)
        if self._sampler is not None and self.model.training:
            update_part(self._sampler, batch)
        return out, batch

    def _refilled(self, inputs: list[dict[str, Any]], most: int) -> tuple[dict[str, Any], Batch]:
        """The same, of at most `most` generations: until every place is taken by a group that teaches.

        Everything is gathered, and the order of all rows decides: two processes choose what one would.
        """
        pad_token = self._tokenizer.pad_token_id
        full = FullBatch(self.args.generation_batch_size // self.num_generations, pad_token)
        while not full.full and full.draws < most:
            for column in self._table().values():
                column.clear()  # holds one generation: so it is this one
            out, batch = self._drawn(inputs)
            out = {name: self._gather_rows(x, name) if has_rows(x) else x for name, x in out.items()}
            full.add(Draw(out, batch, {name: list(column) for name, column in self._table().items()}))
        self._log_refill(full)
        whole, mine = full.finish(), self._mine(len(inputs))
        for name, column in self._table().items():
            column.clear()
            column.extend(whole.columns.get(name, ()))
        self._texts = whole.columns["prompt"][mine], whole.columns["completion"][mine]
        out = {name: x[mine] if has_rows(x) else x for name, x in whole.out.items()}
        out["num_items_in_batch"] = (whole.batch.mask & whole.batch.keep_mask.unsqueeze(1)).sum()
        return out, whole.batch

    def _table(self) -> dict[str, Any]:
        """TRL's table of completions: name → column."""
        nested = {f"{kind}/{name}": x for kind in ("rewards", "extra") for name, x in self._logs[kind].items()}
        return {name: self._logs[name] for name in ("prompt", "completion", "advantages")} | nested

    def _scoring_batch(self, out: dict[str, Any]) -> Batch:
        """Every row of every process, with what the scoring parts named."""
        generations = self.num_generations if self.model.training else self.num_generations_eval
        rewards = self._sum_of_rewards()
        device = rewards.device
        before = self._read_before(out)
        return Batch(
            group=torch.arange(len(rewards), device=device) // generations,
            mask=self._gather_rows(loss_mask(out)).bool(),
            truncated=self._gather_rows(torch.tensor(self._truncated, device=device)),
            prompt_index=self._problem,  # type: ignore[arg-type]
            sources=self._sources(self._gather_rows(out.get("source")), len(rewards)),
            max_completion_length=self.max_completion_length,
            step=self.state.global_step,
            rewards=rewards,
            named_rewards={r.label: self._rewards_per_func[:, i] for i, r in enumerate(self._rewards)},
            old_logp=self._gather_rows(out.get("old_per_token_logps")),
            ref_logp=self._gather_rows(out.get("ref_per_token_logps")),
            policy_drift=self._moved(out) if self._past is not None and self._problem is not None else None,  # type: ignore[arg-type]
            turn_rewards=self._gather_rows(out.get("turn_rewards")),
            rollout_logp=self._gather_rows(out.get("sampling_per_token_logps")),
            values=self._gather_rows(self._values_before(out)),
            **{name: self._gather_rows(x) for name, x in before.items()},
            **self._words(out),
        )

    def _log_sieve(self, batch: Batch) -> None:
        if self.equation.shapers:
            self._ledger["shapers/reward"].append(batch.rewards.nanmean().item())
        if self.equation.filters:
            live = batch.mask.any(1)
            self._ledger["filters/kept"].append(((live & batch.keep_mask).sum() / live.sum().clamp(min=1)).item())
        if self._writers is not None:
            self._log_sources(batch, self._writers)

    def _log_sources(self, batch: Batch, writers: RolloutCollector) -> None:
        """Per source its share of all rows and of those that are its own, their mean reward, and how many were cut."""
        for label, own in batch.sources.items():
            share = own.float().mean().item()
            self._ledger[f"sources/{label}/share"].append(share)
            if given := writers.share(label):
                self._ledger[f"sources/{label}/filled"].append(share / given)
            if own.any():
                self._ledger[f"sources/{label}/reward"].append(batch.rewards[own].nanmean().item())
                self._ledger[f"sources/{label}/truncated"].append(batch.truncated[own].float().mean().item())

    def _log_refill(self, full: FullBatch) -> None:
        self._ledger["dynamic_sampling/rounds"].append(full.draws)
        self._ledger["refill/full"].append(full.filled / full.groups)
        if not full.full and self.accelerator.is_main_process:
            found = f"{full.filled} of {full.groups} groups teach after {full.draws} draws"
            logger.warning("%s: the step is taken on those (step %d)", found, self.state.global_step + 1)

    def _log_advantages(self, scored: Batch) -> None:
        live = scored.advantages.expand(scored.mask.shape)[scored.mask]
        live = live if live.numel() else live.new_zeros(1)
        self._ledger["advantage/abs_mean"].append(live.abs().mean().item())
        self._ledger["advantage/std"].append(live.std(correction=0).item())
        self._ledger["advantage/nonzero"].append((live != 0).float().mean().item())
        table = self._logs["advantages"]
        for _ in range(min(len(table), len(scored.advantages))):
            table.pop()  # TRL's own, which nobody trains on
        table.extend(scored.advantages.mean(1).tolist())
