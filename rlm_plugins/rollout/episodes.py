"""Plays episodes: the model writes a turn, the world answers, until every episode of a batch is over.

One loop for training and for judging, for worlds of words and of tools. The rows that are still played are written
together, so a batch costs as many generations as its longest episode has turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rlm_plugins.environment import Environment, Episode, Message, has_step
from rlm_plugins.rollout.chat_tokens import ChatTokens
from rlm_plugins.rollout.env_call import guarded
from rlm_plugins.rollout.tools import begun, called, reward_of, stepped, tools_of
from rlm_plugins.specs import EnvironmentSpec

Write = Callable[[list[list[int]]], tuple[list[list[int]], list[list[float]] | None]]
"""Token ids per row → those that the policy writes after them, and their log-probabilities where it reports them."""
Anyone = Callable[[int], bool]
"""How many rows are still played here → whether any process has some, where all must write equally often."""


@dataclass
class EpisodeTokens:
    """An episode as tokens.

    Args:
        episode: What happens on it.
        prompt_ids, completion_ids: Token ids; the completion is everything after the prompt.
        mask: Per token of the completion, whether the model wrote it.
        logprobs: Per token of the completion, as the writer reports them; 0 where the world spoke.
        over: Whether nothing more is written.
    """

    episode: Episode
    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    mask: list[bool] = field(default_factory=list)
    logprobs: list[float] | None = field(default_factory=list)
    over: bool = False

    @property
    def own(self) -> list[int]:
        """The tokens the model wrote."""
        return [token for token, own in zip(self.completion_ids, self.mask, strict=True) if own]


class EpisodeRunner:
    """Where episodes of one world are played with one model.

    Args:
        world: With its environment, or tools alone.
        tokenizer: The model's.
        ends: The token ids that end a turn.
        room: The most tokens a completion may have, the world's included.
        positions: The most tokens a row may have; None: any number.
        options: ``chat_template_kwargs`` of the recipe.
    """

    def __init__(
        self,
        environment_spec: EnvironmentSpec,
        tokenizer: Any,
        *,
        ends: Sequence[int],
        room: int,
        positions: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._factory, self._functions = environment_spec.environment or Environment, list(environment_spec.tools)
        self._ends, self._room, self._positions = {*ends}, room, positions
        self._voice = ChatTokens(tokenizer, [*self._functions, *tools_of(self._factory())], options or {})

    def play(
        self,
        prompts: Sequence[Any],
        inputs: Sequence[Mapping[str, Any]],
        write: Write,
        anyone: Anyone = bool,
    ) -> list[EpisodeTokens]:
        """One episode per row, from its first observation to its end.

        Args:
            prompts: One per row.
            inputs: The columns of each row.
            write: The policy.
            anyone: See :data:`Anyone`.
        """
        rows = [self._begun(prompt, columns) for prompt, columns in zip(prompts, inputs, strict=True)]
        while anyone(len(live := [row for row in rows if not row.over])):
            written, logprobs = write([[*row.prompt_ids, *row.completion_ids] for row in live])
            for number, row in enumerate(live):
                self._turn(row, written[number], None if logprobs is None else logprobs[number])
        return rows

    def _begun(self, prompt: Any, columns: Mapping[str, Any]) -> EpisodeTokens:
        episode, observation = Episode(None, prompt), None
        environment = episode.environment = guarded(episode, "__init__", self._factory)
        if environment is not None:
            observation = guarded(episode, "reset", partial(begun, environment, columns))
        episode.prompt, ids = self._voice.opening(prompt, observation)
        return EpisodeTokens(episode, ids, over=episode.fault is not None)

    def _turn(self, row: EpisodeTokens, ids: list[int], logprobs: list[float] | None) -> None:
        """What the model has written is taken as an action; what the world says to it joins the row."""
        episode, before = row.episode, [*row.prompt_ids, *row.completion_ids]
        ids = ids[: self._left(row)]
        _join(row, ids, True, None if logprobs is None else logprobs[: len(ids)])
        message = self._voice.meant(ids, before)
        episode.messages.append(message)
        episode.turn_ends.append(max(len(row.completion_ids) - 1, 0))
        episode.turn_rewards.append(0.0)
        if not ids or ids[-1] not in self._ends:
            episode.truncated = True
            said = None
        else:
            said = self._said(episode, message)
        self._go_on(row, said)

    def _said(self, episode: Episode, message: Message) -> list[Message] | None:
        """What the world says to an action; None: it is over."""
        environment = episode.environment
        if not has_step(environment):
            told = guarded(episode, "a tool", partial(called, environment, message, self._functions))
            if told is None:
                return None
            episode.tool_calls += len(told.messages)
            episode.tool_failures += told.failures
            episode.done = told.done
            return None if told.done else told.messages
        answer = guarded(episode, "step", partial(stepped, environment, message["content"]))
        if answer is None:
            return None
        observation, episode.turn_rewards[-1], episode.done = answer
        return None if episode.done else [{"role": "user", "content": observation}]

    def _go_on(self, row: EpisodeTokens, said: list[Message] | None) -> None:
        """The world's words, if they and one more token have room; else the episode is over."""
        episode = row.episode
        if said is not None and len(episode.turn_ends) < getattr(episode.environment, "turns", Environment.turns):
            ids = self._voice.reply(said, chat=not isinstance(episode.prompt, str))
            if len(ids) < self._left(row):
                episode.messages += said
                _join(row, ids, False, [0.0] * len(ids))
                return
            episode.truncated = True
        row.over = True
        if hasattr(episode.environment, "get_reward") and episode.fault is None and episode.turn_rewards:
            paid = guarded(episode, "get_reward", partial(reward_of, episode.environment))
            episode.turn_rewards[-1] += paid or 0.0

    def _left(self, row: EpisodeTokens) -> int:
        most = self._room - len(row.completion_ids)
        if self._positions is not None:
            most = min(most, self._positions - len(row.prompt_ids) - len(row.completion_ids))
        return max(0, most)


def told_of(rows: Sequence[EpisodeTokens]) -> dict[str, Any]:
    """Episodes as the rewards and a reader see them: prompts, completions, completion_ids, and what is shown."""
    episodes = [row.episode for row in rows]
    return {
        "prompts": [episode.prompt for episode in episodes],
        "completions": [e.completion_text if isinstance(e.prompt, str) else list(e.messages) for e in episodes],
        "completion_ids": [row.own for row in rows],
        "shown": [episode.transcript for episode in episodes],
    }


def _join(row: EpisodeTokens, ids: Sequence[int], own: bool, logprobs: Sequence[float] | None) -> None:
    row.completion_ids += ids
    row.mask += [own] * len(ids)
    row.logprobs = None if logprobs is None or row.logprobs is None else [*row.logprobs, *logprobs]
