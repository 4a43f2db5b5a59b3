"""A world that answers: its episodes are played while the rows are written, and only the model's own words count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlm_plugins.rollout.collector import Rows
from rlm_plugins.rollout.episodes import EpisodeRunner, EpisodeTokens, told_of
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.trainer.rollout_sources import Writing


@dataclass
class Seen:
    """The rows of this process as the rewards and a reader see them.

    Args:
        prompts: As the model read them.
        completions: What the model said; of a chat, all messages after the prompt.
        completion_ids: The tokens the model wrote.
        truncated: Whether a row ended because there was no room for more.
        shown: What a reader is shown of each completion.
    """

    prompts: Sequence[Any]
    completions: Sequence[Any]
    completion_ids: list[list[int]]
    truncated: list[bool]
    shown: Sequence[Any]


class Playing(Writing):
    """The same, in a world of one turn or of several.

    Args:
        world: Whose environment and tools the rows are played with; None: rows have one turn.
    """

    def __init__(self, *, environment_spec: EnvironmentSpec | None = None, **rest: Any) -> None:
        self._table_of_episodes: EpisodeRunner | None = None
        self._played: list[EpisodeTokens] | None = None
        super().__init__(**rest)
        if environment_spec is not None and environment_spec.multi_turn:
            self._table_of_episodes = EpisodeRunner(
                environment_spec,
                self.tokenizer,
                ends=self.eos_token_ids,
                room=self.max_completion_length,
                positions=getattr(self.model.config.get_text_config(), "max_position_embeddings", None),
                options=self.chat_template_kwargs,
            )

    def play(self, prompts: Sequence[Any], inputs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
        """What a rollout source returns, of one episode per row: the world's tokens are marked as not trained on."""
        assert self._table_of_episodes is not None
        rows = self._played = self._table_of_episodes.play(prompts, inputs, self._go_on, self._anyone)
        end = self.tokenizer.eos_token_id
        return {
            "prompt_ids": [row.prompt_ids for row in rows],
            "completion_ids": [row.completion_ids or [end] for row in rows],  # TRL knows no row without tokens
            "mask": [row.mask or [False] for row in rows],
            "logprobs": [row.logprobs for row in rows],
            "episodes": [row.episode for row in rows],
            "environments": [row.episode.environment for row in rows],
        }

    def _go_on(self, ids: list[list[int]]) -> tuple[list[list[int]], list[list[float]] | None]:
        idle = self._idle(len(ids))
        spare = self.prompt_ids([self._inputs[0]["prompt"]]) * idle if idle else []
        written, logprobs = self._generate_single_turn([*ids, *spare], None, {}, num_generations=1)
        return written[: len(ids)], logprobs and logprobs[: len(ids)]

    def _anyone(self, rows: int) -> bool:
        return rows + self._idle(rows) > 0

    def _generate(self, prompts: Any) -> Any:
        self._played = None
        return super()._generate(prompts)

    def _seen(self, prompts: Any, completions: Any, completion_ids: list[list[int]]) -> Seen:
        """What TRL says was written, or what was said in the episodes."""
        if self._played is None:
            ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
            truncated = [not ids or ids[-1] not in ends for ids in completion_ids]
            return Seen(prompts, completions, completion_ids, truncated, completions)
        return Seen(**told_of(self._played), truncated=[row.episode.truncated for row in self._played])

    def _said_of_rows(self, rows: Rows, completion_ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """The same, and what each turn was paid (B, T), on its last token."""
        said = super()._said_of_rows(rows, completion_ids)
        if self._played is not None:
            paid = torch.zeros(completion_ids.shape, device=completion_ids.device)
            for i, episode in enumerate(row.episode for row in self._played):
                paid[i, episode.turn_ends] = torch.tensor(episode.turn_rewards, device=paid.device)
            said["turn_rewards"] = paid
            self._log_episodes(self._played)
        return said

    def _log_episodes(self, rows: Sequence[EpisodeTokens]) -> None:
        told = [
            [
                len(e.turn_ends),
                sum(e.turn_rewards),
                float(e.done),
                float(e.fault is not None),
                e.tool_calls,
                e.tool_failures,
            ]
            for e in (row.episode for row in rows)
        ]
        each = self.accelerator.gather(torch.tensor(told, dtype=torch.float32, device=self.accelerator.device))
        turns, paid, done, failed, calls, failures = each.mean(0).tolist()
        found = {"episodes/turns": turns, "episodes/return": paid, "episodes/done": done, "episodes/failed": failed}
        if calls:
            found |= {"tools/call_frequency": calls, "tools/failure_frequency": failures / calls}
        for name, value in found.items():
            self._ledger[name].append(value)
