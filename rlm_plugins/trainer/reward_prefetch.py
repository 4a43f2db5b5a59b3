"""Reward prefetch: asynchronous and multiprocess rewards start while the policy still generates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rlm_plugins.rewards.columns import groups_of, reward_columns
from rlm_plugins.rollout.generator_call import OnFinished
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.prompts import Prompts
from rlm_plugins.trainer.rollout import Rollout


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
        completions = [[{"role": "assistant", "content": text}] for text in texts] if is_chat else texts
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
