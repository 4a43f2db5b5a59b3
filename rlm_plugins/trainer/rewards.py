"""Rewards of a generation batch: their sum, their failures, their metrics, and their start during generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.statistics import Groups
from rlm_plugins.errors import PartError
from rlm_plugins.rewards.columns import as_messages, groups_of, reward_columns
from rlm_plugins.rewards.fault import Fault, FaultLog, raise_on_all_processes
from rlm_plugins.rollout.generator_call import OnFinished
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.generation import Prompts
from rlm_plugins.trainer.rollout import Rollout
from rlm_plugins.workers.distributed import gather_lists

LogFaults = Callable[[Sequence[Mapping[str, Any]]], None]
"""Called with the samples of every process on which rewards failed."""


@dataclass
class Rewards:
    """Rewards as TRL computes them, with failures shared by every process, and their diagnostics.

    Attributes:
        texts: Prompts and completions for logs: of an episode, its transcript.
        truncated: Per completion of this process, True if it ended at the length limit.
        per_function: (B, R) each reward of the completions of all processes.
    """

    context: TrainerContext
    rollout: Rollout
    weights: torch.Tensor
    faults: FaultLog | None
    log_faults: LogFaults | None
    texts: tuple[Sequence[Any], Sequence[Any]] = field(default=((), ()), init=False)
    truncated: list[bool] = field(default_factory=list, init=False)
    per_function: torch.Tensor = field(init=False)
    _skipped: torch.Tensor = field(init=False)

    @contextmanager
    def recorded(self, trainer: Any) -> Iterator[None]:
        """Keep what `_calculate_rewards` of the trainer returns, which a subclass may override."""
        name = "_calculate_rewards"
        assigned, calculate = trainer.__dict__.get(name), getattr(trainer, name)
        trainer.__dict__[name] = partial(self.record, calculate)
        try:
            yield
        finally:
            del trainer.__dict__[name]
            trainer.__dict__.update({} if assigned is None else {name: assigned})

    def record(
        self,
        calculate: Callable[..., Any],
        inputs: Any,
        prompts: Any,
        completions: Any,
        completion_ids: list[list[int]],
    ) -> torch.Tensor:
        """Return and keep (B, R) each reward of the completions of all processes.

        Raises:
            Fault: An environment failed; on every process.
            PartError: An override returned anything else.
        """
        view = self.rollout.view(prompts, completions, completion_ids)
        self.texts, self.truncated = (view.prompts, view.logged), view.truncated
        for observer in self.context.observers:
            observer.completions(inputs, view)
        self._check_episodes()
        distinct = {(repr(prompt), tuple(ids)) for prompt, ids in zip(view.prompts, view.completion_ids, strict=True)}
        self.context.log("completions/distinct", len(distinct) / len(view.completion_ids))
        count = len(prompts) * self.context.accelerator.num_processes
        self._skipped = torch.zeros(count, dtype=torch.bool, device=self.context.accelerator.device)
        rewards = calculate(inputs, view.prompts, view.completions, view.completion_ids)
        shape = (count, len(self.weights))
        if not isinstance(rewards, torch.Tensor) or tuple(rewards.shape) != shape:
            returned = tuple(rewards.shape) if isinstance(rewards, torch.Tensor) else type(rewards).__name__
            allowed = "a tensor: completions of all processes × reward functions"
            raise PartError(f"expected shape {shape}, got {returned}", where="_calculate_rewards", allowed=allowed)
        self.per_function = rewards
        return rewards

    def compute(self, trl_calculate: Callable[..., torch.Tensor], *args: Any) -> torch.Tensor:
        """Return (B, R) each reward of the completions of all processes, as TRL computes it.

        Raises:
            Fault: A reward failed; on every process.
        """
        if self.faults is None:
            return trl_calculate(*args)
        self.faults.clear()
        rewards = trl_calculate(*args)
        self._share_faults(self.faults, len(args[1]))
        return rewards

    def _check_episodes(self) -> None:
        """Raise the first failure of an episode on every process if no reward names `episodes`: it would report it."""
        episodes = self.rollout.episodes
        if episodes is None or any("episodes" in reward.part.part.data for reward in self.context.rewards):
            return
        hint = "`on_error: skip` on a reward that names `episodes` (`episode_return`) skips such completions"
        failed = [item.episode.fault for item in episodes if item.episode.fault is not None]
        faults = [Fault(fault.problem, where=fault.where, allowed=fault.allowed, hint=hint) for fault in failed]
        raise_on_all_processes(faults[0] if faults else None)

    def _share_faults(self, faults: FaultLog, count: int) -> None:
        """Gather failures and durations of all processes; a reward that stops the run raises on each of them."""
        labels, accelerator = [reward.label for reward in self.context.rewards], self.context.accelerator
        failed = torch.zeros(count, len(labels) + 1, device=accelerator.device)
        for column, label in enumerate(labels):
            failed[faults.rows.get(label, []), column] = 1.0
        failed[list(faults.skipped), -1] = 1.0
        failed = accelerator.gather(failed)
        if failed.any():
            raise_on_all_processes(faults.stop)
            records = gather_lists([{"process": accelerator.process_index, **record} for record in faults.records])
            if self.log_faults is not None:
                self.log_faults(records)
        self._skipped = failed[:, -1].bool()
        seconds = torch.tensor([[faults.seconds.get(label, 0.0) for label in labels]], device=accelerator.device)
        slowest = accelerator.gather(seconds).amax(0).tolist()
        for column, label in enumerate(labels):
            self.context.log(f"rewards/{label}/failed", failed[:, column].sum().item())
            self.context.log(f"rewards/{label}/seconds", slowest[column])

    def total(self) -> torch.Tensor:
        """Return Σ weight · reward (B,); NaN if no reward applies, or if a failure excludes the completion."""
        total = self.weighted(self.per_function)
        return total if self.faults is None else total.masked_fill(self._skipped, torch.nan)

    def weighted(self, per_function: torch.Tensor) -> torch.Tensor:
        """Return Σ weight · reward (B,) of rewards (B, R); NaN if no reward of nonzero weight applies."""
        weights = self.weights.to(per_function.device)
        is_weighted = weights != 0 if weights.any() else weights == 0
        unscored = per_function[:, is_weighted].isnan().all(1)
        return (per_function * weights).nansum(1).masked_fill(unscored, torch.nan)

    def log(self, batch: Batch) -> None:
        """Log each reward's share of the variance, ties, and correlations with the length and with the sum."""
        total, length = batch.rewards, batch.mask.sum(1).float()
        scored = ~total.isnan()
        weighted = {r.label: batch.named_rewards[r.label] * r.weight for r in self.context.rewards}
        metrics: dict[str, float | None] = {"reward_ties": ties(total, batch.group)}
        metrics["reward_length_correlation"] = correlation(total, length, scored)
        for label, share in shares(weighted, total, scored).items():
            metrics[f"rewards/{label}/share"] = share
        for label, x in batch.named_rewards.items():
            metrics[f"rewards/{label}/unscored"] = x.isnan().float().mean().item()
            metrics[f"rewards/{label}/length_correlation"] = correlation(x, length, ~x.isnan())
            metrics[f"rewards/{label}/sum_correlation"] = correlation(x, total, scored & ~x.isnan())
        for name, value in metrics.items():
            if value is not None:
                self.context.log(name, value)
        self.context.replace_last("frac_reward_zero_std", equal_groups(total, batch.group))


def shares(
    parts: Mapping[str, Float[torch.Tensor, "B"]], total: Float[torch.Tensor, "B"], selected: Bool[torch.Tensor, "B"]
) -> dict[str, float]:
    """Return label → share of a weighted reward in the variance of the sum R: cov(w r, R) / var(R).

    They sum to 1 if every reward scored every completion; a negative one opposes the others. Empty if all
    rewards are equal.

    >>> x, y = torch.tensor([0.0, 1.0, 0.0, 1.0]), torch.tensor([0.0, 0.0, 1.0, 1.0])
    >>> shares({"x": 2 * x, "y": y}, 2 * x + y, torch.ones(4, dtype=torch.bool))
    {'x': 0.800000011920929, 'y': 0.20000000298023224}
    """
    centered = _centered(total[selected])
    variance = (centered * centered).sum()
    if variance <= 0:
        return {}
    return {label: (_centered(x.nan_to_num()[selected]) @ centered / variance).item() for label, x in parts.items()}


def correlation(
    x: Float[torch.Tensor, "B"], y: Float[torch.Tensor, "B"], selected: Bool[torch.Tensor, "B"]
) -> float | None:
    """Return Pearson's correlation over the selected completions; None where one variable is constant.

    >>> selected = torch.tensor([True, True, False])
    >>> round(correlation(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([5.0, 7.0, 0.0]), selected), 6)
    1.0
    """
    if selected.sum() < 2:
        return None
    a, b = _centered(x[selected].double()), _centered(y[selected].double())
    size = (a @ a).sqrt() * (b @ b).sqrt()
    return (a @ b / size).item() if size > 1e-12 else None


def ties(rewards: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"]) -> float | None:
    """Return the share of pairs within a group that have equal rewards; None without a pair.

    >>> ties(torch.tensor([1.0, 1.0, 0.0, 2.0]), torch.tensor([0, 0, 0, 1]))
    0.3333333432674408
    """
    pairs = (group.unsqueeze(0) == group.unsqueeze(1)).triu(1)
    pairs &= ~(rewards.isnan().unsqueeze(0) | rewards.isnan().unsqueeze(1))
    equal = rewards.unsqueeze(0) == rewards.unsqueeze(1)
    return (equal & pairs).sum().div(pairs.sum()).item() if pairs.any() else None


def equal_groups(rewards: Float[torch.Tensor, "B"], group: Int[torch.Tensor, "B"]) -> float:
    """Return the share of completions whose group has equal rewards.

    Rewards are compared, not their std: eight times 0.2 have a std of 1.6e-8 in float32.

    >>> equal_groups(torch.tensor([0.2, 0.2, 0.2, 0.0, 1.0]), torch.tensor([0, 0, 0, 1, 1]))
    0.6000000238418579
    """
    groups = Groups(rewards, group)
    return (~groups.flatten(groups.has_spread())).float().mean().item()


def _centered(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean()


@dataclass
class RewardPrefetch:
    """Starts asynchronous and multiprocess rewards early; their results are fetched when TRL calls them.

    Rewards that may be called by group start when the last completion of a group is finished, if the generator
    reports that. The others start when the whole batch is generated.
    """

    context: TrainerContext
    prompts: Prompts
    rollout: Rollout
    functions: Sequence[Any]
    decode: Callable[..., list[str]]
    arguments: Callable[[], dict[str, Any]]
    loop: Any
    is_single_turn: bool
    _prompts: Sequence[Any] = field(default=(), init=False)

    @property
    def is_on(self) -> bool:
        """True if a reward can be started early."""
        return any(hasattr(reward, "begin") for reward in self.functions)

    @contextmanager
    def during_generation(self, prompts: Sequence[Any]) -> Iterator[None]:
        """Start rewards of finished groups inside a ``with`` block."""
        self._prompts = prompts if self.is_on and self._has_plain_text(prompts[0]) else ()
        self._group_of = {row: group for group in groups_of(self._prompts) for row in group}
        self._finished: dict[int, list[int]] = {}
        try:
            yield
        finally:
            self._prompts = ()

    def _has_plain_text(self, prompt: Any) -> bool:
        """Return True if completion i belongs to prompt i, and its text is its decoded tokens."""
        parses = any(getattr(self.context.tokenizer, name, None) for name in ("response_template", "response_schema"))
        return self.is_single_turn and (isinstance(prompt, str) or not parses)

    def on_finished(self) -> OnFinished | None:
        """Return the function that the generator calls with finished completions, or None."""
        return self._begin_finished_groups if self._prompts else None

    def _begin_finished_groups(self, rows: list[int], ids: list[list[int]]) -> None:
        self._finished.update(zip(rows, ids, strict=True))
        for group in {tuple(self._group_of[row]) for row in rows}:
            if all(row in self._finished for row in group):
                prompts = [self._prompts[row] for row in group]
                completion_ids = [self._finished[row] for row in group]
                inputs = [self.prompts.inputs[row] for row in group]
                self._begin(self.columns(prompts, completion_ids, inputs), by_group=True)

    def _begin(self, columns: dict[str, Any], *, by_group: bool = False) -> None:
        for reward in self.functions:
            if hasattr(reward, "begin") and (reward.by_group or not by_group):
                reward.begin(columns, self.loop)

    def columns(
        self,
        prompts: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        inputs: Sequence[Mapping[str, Any]],
        **arguments: Any,
    ) -> dict[str, Any]:
        """Return the columns that rewards receive, for completions whose text is the decoded tokens."""
        texts = self.decode(completion_ids, skip_special_tokens=True)
        is_chat = not isinstance(prompts[0], str)
        completions = as_messages(texts) if is_chat else texts
        return reward_columns(prompts, completions, completion_ids, inputs, **arguments)

    def begin_batch(
        self, prompts: list[Any], _: Any, ids: Any, mask: Any, completions: Any, logprobs: Any, extra: Any, *images: Any
    ) -> None:
        """Start the rewards of a generation batch, given what TRL's `_generate` returns."""
        if not self.is_on:
            return
        extra = {name: x if isinstance(x, list) else [x] * len(ids) for name, x in extra.items() if name != "env_mask"}
        view = self.rollout.view(prompts, completions, ids)
        inputs, arguments = self.prompts.inputs, {**extra, **self.arguments()}
        self._begin(reward_columns(view.prompts, view.completions, view.completion_ids, inputs, **arguments))
