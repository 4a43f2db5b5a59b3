"""What the rewards say of the rows: faults are known to every process, and the ledger says who decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object

from rlm_plugins.batch import Batch
from rlm_plugins.rewards.diagnostics import correlation, shares, ties
from rlm_plugins.rewards.fault import Fault
from rlm_plugins.rewards.fault_log import FaultLog, raise_on_all_processes
from rlm_plugins.rollout.tools import requires_episodes
from rlm_plugins.trainer.critic_update import Valuing

Note = Callable[[Sequence[Mapping[str, Any]]], None]


class Judging(Valuing):
    """The same, with rewards that may fail.

    Args:
        faults: Where the rewards write down what went wrong; None: they raise it.
        note: Is handed the samples on which they did, of every process.
    """

    def __init__(self, *, faults: FaultLog | None = None, note: Note | None = None, **rest: Any) -> None:
        self._faults, self._note = faults, note
        super().__init__(**rest)

    def _calculate_rewards(
        self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: list[list[int]]
    ) -> torch.Tensor:
        seen = self._seen(prompts, completions, completion_ids_list)
        self._texts, self._truncated = (seen.prompts, seen.shown), seen.truncated
        self._hear_environments()
        if self._faults is not None:
            self._faults.clear()
        self._rewards_per_func = super()._calculate_rewards(inputs, seen.prompts, seen.completions, seen.completion_ids)
        if self._faults is not None:
            self._take_stock(self._faults, len(prompts))
        return self._rewards_per_func

    def _hear_environments(self) -> None:
        """Raises what failed in an episode, where no reward reads episodes and would say so.

        Raises:
            Fault: On every process.
        """
        if self._played is not None and not any(requires_episodes(reward.part.part) for reward in self._rewards):
            faults = [row.episode.fault for row in self._played if row.episode.fault is not None]
            hint = "`on_error: skip` beside a reward that reads episodes (`episode_return`) leaves such rows out"
            said = [Fault(each.problem, where=each.where, allowed=each.allowed, hint=hint) for each in faults]
            raise_on_all_processes(said[0] if said else None)

    def _take_stock(self, faults: FaultLog, rows: int) -> None:
        """Tells every process what went wrong on any of them.

        Raises:
            Fault: Of a reward that stops the run; on every process, before any of them waits for the others.
        """
        labels, device = [reward.label for reward in self._rewards], self.accelerator.device
        failed = torch.zeros(rows, len(labels) + 1, device=device)
        for column, label in enumerate(labels):
            failed[faults.rows.get(label, []), column] = 1.0
        failed[list(faults.skipped), -1] = 1.0
        failed = self.accelerator.gather(failed)
        if failed.any():
            raise_on_all_processes(faults.stop)
            records = [{"process": self.accelerator.process_index, **record} for record in faults.records]
            records = gather_object(records) if self.accelerator.num_processes > 1 else records
            if self._note is not None:
                self._note(records)
        self._skipped = failed[:, -1].bool()
        seconds = torch.tensor([[faults.seconds.get(label, 0.0) for label in labels]], device=device)
        slowest = self.accelerator.gather(seconds).amax(0).tolist()
        for column, label in enumerate(labels):
            self._ledger[f"rewards/{label}/failed"].append(failed[:, column].sum().item())
            self._ledger[f"rewards/{label}/seconds"].append(slowest[column])

    def _sum_of_rewards(self) -> torch.Tensor:
        """Σ weight · reward (B,); NaN where no reward that counts applied, or one failed that takes its row along."""
        total = self._weighted(self._rewards_per_func)
        return total if self._faults is None else total.masked_fill(self._skipped, torch.nan)

    def _weighted(self, each: torch.Tensor) -> torch.Tensor:
        """The same of what each reward said (B, R), whoever failed."""
        weights = self.reward_weights.to(each.device)
        counts = weights != 0 if weights.any() else weights == 0
        return (each * weights).nansum(1).masked_fill(each[:, counts].isnan().all(1), torch.nan)

    def _log_rewards(self, batch: Batch) -> None:
        """Which reward made the difference, which pairs none could tell apart, and which follows the length."""
        total, length = batch.rewards, batch.mask.sum(1).float()
        scored = ~total.isnan()
        weighted = {r.label: batch.named_rewards[r.label] * r.weight for r in self._rewards}
        found: dict[str, float | None] = {"reward_ties": ties(total, batch.group)}
        found["reward_length_correlation"] = correlation(total, length, scored)
        for label, share in shares(weighted, total, scored).items():
            found[f"rewards/{label}/share"] = share
        for label, x in batch.named_rewards.items():
            found[f"rewards/{label}/unscored"] = x.isnan().float().mean().item()
            found[f"rewards/{label}/length_correlation"] = correlation(x, length, ~x.isnan())
        for name, value in found.items():
            if value is not None:
                self._ledger[name].append(value)
