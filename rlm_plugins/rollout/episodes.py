"""Episodes of multi-turn environments, and the calls of an environment's methods, with their results validated.

Training and evaluation share this loop, for `step` environments and for tools. All running episodes generate together,
so a batch takes as many calls of the policy as its longest episode has turns.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Real
from typing import Any, TypeVar

from rlm_plugins.errors import RlmError
from rlm_plugins.registry.contract import accepted
from rlm_plugins.rollout.chat_tokens import ChatTokens, EpisodeTokens, Fork
from rlm_plugins.specs import Environment, EnvironmentSpec, Episode, Message, has_step
from rlm_plugins.workers.time_limit import CallTimeout, resolved, time_limit

_NO_TOOLS = ("reset", "step", "get_reward")


def tools_of(environment: Any) -> list[Callable[..., Any]]:
    """Return the tools of an environment: its public methods, unless it has a `step`."""
    if has_step(environment):
        return []
    members = inspect.getmembers(type(environment), predicate=inspect.isfunction)  # of the class: runs no property
    return [getattr(environment, name) for name, _ in members if name not in _NO_TOOLS and not name.startswith("_")]


def reset_environment(environment: Any, columns: Mapping[str, Any]) -> str | None:
    """Return the first observation, from `reset` on the columns of an example."""
    observation = environment.reset(**accepted(environment.reset, columns))
    if observation is None or isinstance(observation, str):
        return observation
    raise RlmError(f"it returned {observation!r:.80}", allowed="a text, or None where nothing is added to the prompt")


def step_environment(environment: Any, action: str) -> tuple[str, float, bool]:
    """Return observation, reward and end of an action."""
    result = environment.step(action)
    if isinstance(result, tuple) and len(result) == 3:
        observation, reward, done = result
        if isinstance(observation, str) and _is_finite_number(reward) and done in (True, False):
            return observation, float(reward), bool(done)
    raise RlmError(f"it returned {result!r:.80}", allowed="(observation: text, reward: a finite number, done: a bool)")


def call_tools(
    environment: Any, message: Message, functions: Sequence[Callable[..., Any]]
) -> tuple[list[Message], int, bool]:
    """Call the tools that a turn names; an exception becomes the message of its call.

    Returns:
        A message per call, the number of calls that failed, and True if there was no call or the environment is done.
    """
    tools = {tool.__name__: tool for tool in (*functions, *tools_of(environment))}
    replies = [_call_tool(call.get("function", call), tools) for call in message.get("tool_calls") or ()]
    done = not replies or bool(getattr(environment, "done", False))
    return [reply for reply, _ in replies], sum(failed for _, failed in replies), done


def _call_tool(call: Mapping[str, Any], tools: Mapping[str, Callable[..., Any]]) -> tuple[Message, bool]:
    """Return the message that answers a call, and True if it failed."""
    name, failed = call["name"], False
    try:
        if name not in tools:
            raise ValueError(f"Tool {name} not found.")
        result = resolved(tools[name](**call["arguments"]))
    except Exception as error:
        result, failed = {"error": str(error)}, True
    return {"role": "tool", "name": name, "content": str(result)}, failed


def episode_reward(environment: Any) -> float:
    """Return the reward of a whole episode, from `get_reward`."""
    reward = resolved(environment.get_reward())
    if _is_finite_number(reward):
        return float(reward)
    raise RlmError(f"it returned {reward!r:.80}", allowed="a finite number")


def _is_finite_number(x: Any) -> bool:
    """Return True for a finite number of Python or numpy."""
    return isinstance(x, Real) and math.isfinite(x)


GenerateFn = Callable[[list[list[int]]], tuple[list[list[int]], list[list[float]] | None]]
"""Token ids per episode → the policy's continuations, and their log-probs where reported."""
AnyRunning = Callable[[int], bool]
"""Number of running episodes of this process → True if any process has some: all must generate equally often."""


class EpisodeRunner:
    """Runner of the episodes of one environment with one model."""

    def __init__(
        self,
        environment_spec: EnvironmentSpec,
        tokenizer: Any,
        *,
        end_token_ids: Sequence[int],
        max_completion_length: int,
        max_length: int | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._factory, self._functions = environment_spec.environment or Environment, list(environment_spec.tools)
        self._end_token_ids = {*end_token_ids}
        self._max_completion_length, self._max_length = max_completion_length, max_length
        self._chat = ChatTokens(tokenizer, [*self._functions, *tools_of(self._factory())], options or {})

    def play(
        self,
        prompts: Sequence[Any],
        inputs: Sequence[Mapping[str, Any]],
        generate: GenerateFn,
        any_running: AnyRunning = bool,
        starts: Sequence[Fork | None] | None = None,
    ) -> list[EpisodeTokens]:
        """Return one episode per prompt, from its first observation to its end."""
        episodes = [self._start(prompt, columns) for prompt, columns in zip(prompts, inputs, strict=True)]
        for tokens, start in zip(episodes, starts or (), strict=bool(starts)):
            if start is not None:
                self._replay(tokens, start)
        running = [tokens for tokens in episodes if not tokens.ended]
        while any_running(len(running)):
            turns, logprobs = generate([[*tokens.prompt_ids, *tokens.completion_ids] for tokens in running])
            for number, tokens in enumerate(running):
                self._add_turn(tokens, turns[number], None if logprobs is None else logprobs[number])
            running = [tokens for tokens in running if not tokens.ended]
        return episodes

    def _start(self, prompt: Any, columns: Mapping[str, Any]) -> EpisodeTokens:
        episode, observation = Episode(None, prompt), None
        environment = episode.environment = call_environment(episode, "__init__", self._factory)
        if environment is not None:
            observation = call_environment(episode, "reset", partial(reset_environment, environment, columns))
        episode.prompt, ids = self._chat.render_prompt(prompt, observation)
        return EpisodeTokens(episode, ids, ended=episode.fault is not None)

    def _replay(self, tokens: EpisodeTokens, start: Fork) -> None:
        """Replay the first turns of another episode; environments are deterministic in example and actions."""
        parent = start.parent
        for span in parent.turns[: start.turns]:
            if tokens.ended:
                return
            self._add_turn(tokens, parent.completion_ids[span], parent.logprobs and parent.logprobs[span])

    def _add_turn(self, tokens: EpisodeTokens, ids: list[int], logprobs: list[float] | None) -> None:
        """Append a generated turn, pass it to the environment as an action, and append the observation."""
        episode, prefix = tokens.episode, [*tokens.prompt_ids, *tokens.completion_ids]
        ids = ids[: self._tokens_left(tokens)]
        tokens.append(ids, True, None if logprobs is None else logprobs[: len(ids)])
        message = self._chat.parse_turn(ids, prefix)
        episode.messages.append(message)
        episode.turn_ends.append(max(len(tokens.completion_ids) - 1, 0))
        episode.turn_rewards.append(0.0)
        observation = None
        if ids and ids[-1] in self._end_token_ids:
            observation = self._act(episode, message)
        else:  # a turn without an end token was cut by the length limit, and is no action
            episode.truncated = True
        self._continue(tokens, observation)

    def _act(self, episode: Episode, message: Message) -> list[Message] | None:
        """Return the observation that follows an action; None: the episode is done."""
        environment = episode.environment
        if not has_step(environment):
            results = call_environment(episode, "a tool", partial(call_tools, environment, message, self._functions))
            if results is None:
                return None
            messages, failures, episode.done = results
            episode.tool_calls += len(messages)
            episode.tool_failures += failures
            return None if episode.done else messages
        outcome = call_environment(episode, "step", partial(step_environment, environment, message["content"]))
        if outcome is None:
            return None
        observation, episode.turn_rewards[-1], episode.done = outcome
        return None if episode.done else [{"role": "user", "content": observation}]

    def _continue(self, tokens: EpisodeTokens, observation: list[Message] | None) -> None:
        """Append the observation if it and one more token fit; otherwise end the episode."""
        episode = tokens.episode
        if observation is not None and len(episode.turn_ends) < getattr(
            episode.environment, "turns", Environment.turns
        ):
            ids = self._chat.render_reply(observation, chat=not isinstance(episode.prompt, str))
            if len(ids) < self._tokens_left(tokens):
                episode.messages += observation
                tokens.append(ids, False, [0.0] * len(ids))
                return
            episode.truncated = True
        tokens.ended = True
        if hasattr(episode.environment, "get_reward") and episode.fault is None and episode.turn_rewards:
            reward = call_environment(episode, "get_reward", partial(episode_reward, episode.environment))
            episode.turn_rewards[-1] += reward or 0.0

    def _tokens_left(self, tokens: EpisodeTokens) -> int:
        limit = self._max_completion_length - len(tokens.completion_ids)
        if self._max_length is not None:
            limit = min(limit, self._max_length - len(tokens.prompt_ids) - len(tokens.completion_ids))
        return max(0, limit)


def reward_inputs(episodes: Sequence[EpisodeTokens]) -> dict[str, Any]:
    """Return prompts, completions and completion_ids as rewards get them, and ``logged``, the text for readers."""
    records = [tokens.episode for tokens in episodes]
    return {
        "prompts": [episode.prompt for episode in records],
        "completions": [e.completion_text if isinstance(e.prompt, str) else list(e.messages) for e in records],
        "completion_ids": [tokens.generated_ids for tokens in episodes],
        "logged": [episode.transcript for episode in records],
    }


T = TypeVar("T")


def call_environment(episode: Episode, method: str, call: Callable[[], T]) -> T | None:
    """Return `call()` within the environment's timeout; on failure, set the episode's fault and return None.

    A call that timed out leaves the environment in an unknown state, so the episode drops it.
    """
    environment, turn = episode.environment, len(episode.turn_ends)
    try:
        with time_limit(getattr(environment, "seconds", Environment.seconds)):
            return call()
    except (Exception, SystemExit) as error:
        name = f"environment {type(environment).__name__} ({type(environment).__module__})"
        context = f" after {episode.messages[-1]['content']!r:.80}" if episode.messages else ""
        problem = error.problem if isinstance(error, RlmError) else f"{type(error).__name__}: {error}"
        episode.fault = RlmError(
            f"`{method}` failed in turn {turn}{context}: {problem}",
            where="the environment" if environment is None else name,
            allowed=error.allowed if isinstance(error, RlmError) else "",
        )
        episode.fault.__cause__ = error
        if isinstance(error, CallTimeout):
            episode.environment = None
        return None
