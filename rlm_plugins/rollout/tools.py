"""Calls of an environment's methods: `reset`, `step`, tools and `get_reward`, with their results validated."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from rlm_plugins.environment import Message, has_step
from rlm_plugins.errors import RlmError
from rlm_plugins.registry.part import Part

_NO_TOOLS = ("reset", "step", "get_reward")


def tools_of(environment: Any) -> list[Callable[..., Any]]:
    """Return the tools of an environment: its public methods, unless it has a `step`."""
    if has_step(environment):
        return []
    members = inspect.getmembers(type(environment), predicate=inspect.isfunction)  # of the class: runs no property
    return [getattr(environment, name) for name, _ in members if name not in _NO_TOOLS and not name.startswith("_")]


def requires_episodes(part: Part) -> bool:
    """Return True if a reward takes `episodes`, so that it raises their faults."""
    return "episodes" in part.data


def accepted_columns(function: Callable[..., Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns that a function has parameters for; all, where it takes any."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(columns)
    return {name: columns[name] for name in parameters if name in columns}


def reset_environment(environment: Any, columns: Mapping[str, Any]) -> str | None:
    """Return the first observation, from `reset` on the columns of an example.

    Raises:
        RlmError: It is not text.
    """
    observation = environment.reset(**accepted_columns(environment.reset, columns))
    if observation is None or isinstance(observation, str):
        return observation
    raise RlmError(f"it returned {observation!r:.80}", allowed="a text, or None where nothing is added to the prompt")


def step_environment(environment: Any, action: str) -> tuple[str, float, bool]:
    """Return observation, reward and end of an action.

    Raises:
        RlmError: The result of `step` is anything else.
    """
    result = environment.step(action)
    if isinstance(result, tuple) and len(result) == 3:
        observation, reward, done = result
        if isinstance(observation, str) and _is_finite_number(reward) and done in (True, False):
            return observation, float(reward), bool(done)
    raise RlmError(f"it returned {result!r:.80}", allowed="(observation: text, reward: a finite number, done: a bool)")


@dataclass
class ToolResults:
    """Results of the tool calls of a turn.

    Args:
        messages: One per call.
        failures: Number of calls that failed.
        done: True if there was no call, or the environment is done.
    """

    messages: list[Message] = field(default_factory=list)
    failures: int = 0
    done: bool = False


def call_tools(environment: Any, message: Message, functions: Sequence[Callable[..., Any]]) -> ToolResults:
    """Call the tools that a turn names; an exception becomes the message of its call, and is counted.

    Args:
        environment: With its tools.
        message: The turn.
        functions: Tools beside those of the environment.
    """
    tools = {tool.__name__: tool for tool in (*functions, *tools_of(environment))}
    results = ToolResults()
    for call in message.get("tool_calls") or ():
        reply, failed = _call_tool(call.get("function", call), tools)
        results.messages.append(reply)
        results.failures += failed
    results.done = not results.messages or bool(getattr(environment, "done", False))
    return results


def _call_tool(call: Mapping[str, Any], tools: Mapping[str, Callable[..., Any]]) -> tuple[Message, bool]:
    """Return the message that answers a call, and True if it failed."""
    name, failed = call["name"], False
    try:
        if name not in tools:
            raise ValueError(f"Tool {name} not found.")
        result = tools[name](**call["arguments"])
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
    except Exception as error:
        result, failed = {"error": str(error)}, True
    return {"role": "tool", "name": name, "content": str(result)}, failed


async def _awaited(result: Any) -> Any:
    return await result


def episode_reward(environment: Any) -> float:
    """Return the reward of a whole episode, from `get_reward`.

    Raises:
        RlmError: It is not a finite number.
    """
    reward = environment.get_reward()
    if inspect.isawaitable(reward):
        reward = asyncio.run(_awaited(reward))
    if _is_finite_number(reward):
        return float(reward)
    raise RlmError(f"it returned {reward!r:.80}", allowed="a finite number")


def _is_finite_number(x: Any) -> bool:
    """Return True for a finite number of Python or numpy."""
    return isinstance(x, Real) and math.isfinite(x)
