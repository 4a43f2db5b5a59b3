"""Rewards that need not be waited for are asked as soon as their rows are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_plugins.generation.output import OnFinished
from rlm_plugins.rewards.columns import reward_columns
from rlm_plugins.rewards.guard import groups_of
from rlm_plugins.trainer.rewards import Judging


class Hurrying(Judging):
    """The same; with `speed: {prefetch_rewards: true}` rewards that compute elsewhere work while the model writes and
    reads.

    A group whose last row is done goes to the rewards that may be asked by group, where the generator says so
    (`finished`); what is left, when all is written. The answers are fetched when TRL calls the rewards.
    """

    _asked_for: Sequence[Any] = ()

    def _generate(self, prompts: list[Any]) -> Any:
        hurries = self._speed.prefetch_rewards and any(hasattr(reward, "begin") for reward in self.reward_funcs)
        self._asked_for = prompts if hurries and self._writes_as_asked(prompts[0]) else ()
        self._groups = {row: rows for rows in groups_of(self._asked_for) for row in rows}
        self._done: dict[int, list[int]] = {}
        try:
            written = super()._generate(prompts)
        finally:
            self._asked_for = ()
        if hurries:
            self._begin(self._columns_written(prompts, *written))
        return written

    def _writes_as_asked(self, prompt: Any) -> bool:
        """Whether row i of what is written answers prompt i, in one turn, and its text is its tokens'."""
        parses = any(getattr(self._tokenizer, name, None) for name in ("response_template", "response_schema"))
        return self.rollout_func is None and not self.tools and (isinstance(prompt, str) or not parses)

    def _finished(self) -> OnFinished | None:
        return self._hear if self._asked_for else None

    def _hear(self, rows: list[int], ids: list[list[int]]) -> None:
        """Rows are done: groups that are done with them are asked about."""
        self._done.update(zip(rows, ids, strict=True))
        for group in {tuple(self._groups[row]) for row in rows}:
            if all(row in self._done for row in group):
                prompts, written = [self._asked_for[row] for row in group], [self._done[row] for row in group]
                columns = self._columns_of(prompts, written, [self._inputs[row] for row in group])
                self._begin(columns, by_group=True)

    def _begin(self, columns: dict[str, Any], *, by_group: bool = False) -> None:
        loop = getattr(self, "async_loop", None)  # TRL has one where a reward is asynchronous
        for reward in self.reward_funcs:
            if hasattr(reward, "begin") and (reward.by_group or not by_group):
                reward.begin(columns, loop)

    def _columns_of(
        self, prompts: Sequence[Any], ids: Sequence[Sequence[int]], inputs: Sequence[Mapping[str, Any]], **here: Any
    ) -> dict[str, Any]:
        """What rewards are called with, of rows that say what their tokens say."""
        texts = self.processing_class.batch_decode(ids, skip_special_tokens=True)
        chat = not isinstance(prompts[0], str)
        completions = [[{"role": "assistant", "content": text}] for text in texts] if chat else texts
        return reward_columns(prompts, completions, ids, inputs, **here)

    def _columns_written(
        self, prompts: list[Any], _: Any, ids: Any, mask: Any, completions: Any, logprobs: Any, said: Any, *images: Any
    ) -> dict[str, Any]:
        """What `_calculate_rewards` will call the rewards with, from what `_generate` returns."""
        here = {"trainer_state": self.state, "log_extra": self._log_completion_extra, "log_metric": self._log_metric}
        if self.environments is not None:
            here["environments"] = self.environments
        said = {name: x if isinstance(x, list) else [x] * len(ids) for name, x in said.items() if name != "env_mask"}
        seen = self._seen(prompts, completions, ids)
        return reward_columns(seen.prompts, seen.completions, seen.completion_ids, self._inputs, **said, **here)
