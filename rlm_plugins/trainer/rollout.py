"""Completions of a generation batch: by the policy, by rollout sources and in multi-turn environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from rlm_plugins.equation.batch import Batch
from rlm_plugins.rollout.chat_tokens import EpisodeTokens, Fork
from rlm_plugins.rollout.collector import CollectedBatch, RolloutCollector
from rlm_plugins.rollout.episodes import EpisodeRunner, reward_inputs
from rlm_plugins.rollout.group_layout import POLICY
from rlm_plugins.specs import Episode
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.generation import PolicyGeneration, Prompts

EPISODES = "episode_tokens"
"""Column of the episodes of a batch."""


@dataclass
class CompletionView:
    """Completions of this process, for rewards and for logs.

    Args:
        prompts: Prompts of the policy.
        completions: Text of the policy; of a chat, all messages after the prompt.
        completion_ids: Token ids that the policy generated.
        truncated: Per completion, True if it ended at the length limit.
        logged: Completions for logs: of an episode, its transcript.
    """

    prompts: Sequence[Any]
    completions: Sequence[Any]
    completion_ids: list[list[int]]
    truncated: list[bool]
    logged: Sequence[Any]


@dataclass
class Rollout:
    """Generates the completions of a batch and marks which source each comes from.

    Attributes:
        episodes: Episodes of the current generation batch, None without a multi-turn environment.
    """

    context: TrainerContext
    prompts: Prompts
    generation: PolicyGeneration
    eos_token_ids: Sequence[int]
    collector: RolloutCollector | None
    runner: EpisodeRunner | None
    collected: CollectedBatch | None = field(default=None, init=False)
    episodes: list[EpisodeTokens] | None = field(default=None, init=False)

    def start_batch(self) -> None:
        """Discard the completions of the last batch."""
        self.collected = self.episodes = None

    def play(
        self,
        prompts: Sequence[Any],
        inputs: Sequence[Mapping[str, Any]],
        starts: Sequence[Fork | None] | None = None,
    ) -> dict[str, list[Any]]:
        """Play one episode per prompt; tokens of the environment are masked out of the loss."""
        assert self.runner is not None
        num_dummies = self.generation.num_dummies
        rows = self.runner.play(
            prompts, inputs, self.generation.continue_ids, lambda count: count + num_dummies(count) > 0, starts
        )
        end = self.context.tokenizer.eos_token_id
        return {
            "prompt_ids": [row.prompt_ids for row in rows],
            "completion_ids": [row.completion_ids or [end] for row in rows],  # TRL requires one token at least
            "mask": [row.mask or [False] for row in rows],
            "logprobs": [row.logprobs for row in rows],
            EPISODES: rows,
            "episodes": [row.episode for row in rows],
            "environments": [row.episode.environment for row in rows],
        }

    def collect(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """Return the completions of all sources, as TRL's `rollout_func` does."""
        assert self.collector is not None
        first = self.context.local_rows(len(prompts)).start
        rows = self.collected = self.collector(prompts, self.prompts.inputs, first, trainer)
        self.episodes = rows.columns.pop(EPISODES, None)
        logprobs: Any = rows.logprobs
        if all(row is None for row in logprobs):
            logprobs = None
        else:  # TRL takes None for an unknown log-prob, and weighs its token by 1
            ids = rows.completion_ids
            logprobs = [[None] * len(ids[i]) if row is None else row for i, row in enumerate(logprobs)]
        env_mask = {"env_mask": rows.mask} if "episodes" in rows.columns else {}  # TRL then logs lengths of the policy
        token_columns = {"prompt_ids": rows.prompt_ids, "completion_ids": rows.completion_ids, "logprobs": logprobs}
        return {**token_columns, **env_mask, **rows.columns}

    def view(self, prompts: Any, completions: Any, completion_ids: list[list[int]]) -> CompletionView:
        """Return the completions of TRL, or those of the episodes."""
        if self.episodes is None:
            ends = {*self.eos_token_ids, self.context.tokenizer.pad_token_id}
            truncated = [not ids or ids[-1] not in ends for ids in completion_ids]
            return CompletionView(prompts, completions, completion_ids, truncated, completions)
        return CompletionView(
            **reward_inputs(self.episodes), truncated=[row.episode.truncated for row in self.episodes]
        )

    def tensors(self, completion_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return `source` (B,), `trained` (B, T) and, with episodes, `turn_rewards` and `observation_mask` (B, T)."""
        if self.collected is None:
            return {}
        trained = torch.ones_like(completion_ids)
        for i, mask in enumerate(self.collected.mask):
            if mask is not None:
                trained[i, : len(mask)] = torch.tensor(mask, device=trained.device).to(trained.dtype)
        columns = {"source": torch.tensor(self.collected.source, device=trained.device), "trained": trained}
        if self.episodes is not None:
            turn_rewards = torch.zeros(completion_ids.shape, device=completion_ids.device)
            for i, episode in enumerate(row.episode for row in self.episodes):
                turn_rewards[i, episode.turn_ends] = torch.tensor(episode.turn_rewards, device=turn_rewards.device)
            columns |= {"turn_rewards": turn_rewards, "observation_mask": trained == 0}
            self._log_episodes(self.episodes)
        return columns

    def turn_ends(self) -> list[list[int]]:
        """Return the positions of each turn's last token, per completion of this process; empty without episodes."""
        return [list(row.episode.turn_ends) for row in self.episodes or ()]

    def by_source(self, source: torch.Tensor | None, count: int) -> dict[str, torch.Tensor]:
        """Return label of a source → (B,) True for its completions."""
        if source is None or self.collector is None:
            return {POLICY: torch.ones(count, dtype=torch.bool, device=self.context.accelerator.device)}
        return {label: source == number for number, label in enumerate(self.collector.labels)}

    def _log_episodes(self, rows: Sequence[EpisodeTokens]) -> None:
        counts = [_episode_counts(row.episode) for row in rows]
        local = torch.tensor(counts, dtype=torch.float32, device=self.context.accelerator.device)
        turns, returns, done, failed, calls, failures = self.context.accelerator.gather(local).mean(0).tolist()
        means = {"episodes/turns": turns, "episodes/return": returns, "episodes/done": done, "episodes/failed": failed}
        if calls:
            means |= {"tools/call_frequency": calls, "tools/failure_frequency": failures / calls}
        for name, value in means.items():
            self.context.log(name, value)

    def log_sources(self, batch: Batch) -> None:
        """Log each source's share of all completions and of those assigned to it, mean reward and truncations."""
        if self.collector is None:
            return
        for label, from_source in batch.sources.items():
            share = from_source.float().mean().item()
            self.context.log(f"sources/{label}/share", share)
            if assigned := self.collector.share(label):
                self.context.log(f"sources/{label}/filled", share / assigned)
            if from_source.any():
                self.context.log(f"sources/{label}/reward", batch.rewards[from_source].nanmean().item())
                self.context.log(f"sources/{label}/truncated", batch.truncated[from_source].float().mean().item())


def _episode_counts(episode: Episode) -> list[float]:
    """Return number of turns, return, done, failed, tool calls and failed tool calls of an episode."""
    turns, total = len(episode.turn_ends), sum(episode.turn_rewards)
    return [turns, total, episode.done, episode.fault is not None, episode.tool_calls, episode.tool_failures]
