"""What an environment is asked: its tools, or its step, and what it pays."""

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
    """The tools of an environment: its public methods, unless it answers by `step`."""
    if has_step(environment):
        return []
    members = inspect.getmembers(type(environment), predicate=inspect.isfunction)  # of the class: runs no property
    return [getattr(environment, name) for name, _ in members if name not in _NO_TOOLS and not name.startswith("_")]


def reads_episodes(part: Part) -> bool:
    """Whether a reward looks at what happened in the episodes, and so would meet what failed there."""
    return "episodes" in (*part.needs, *part.welcomes)


def named(function: Callable[..., Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns that a function names; all, where it takes any."""
    known = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in known.values()):
        return dict(columns)
    return {name: columns[name] for name in known if name in columns}


def begun(environment: Any, columns: Mapping[str, Any]) -> str | None:
    """What `reset` says of a row.

    Raises:
        RlmError: It is no text.
    """
    said = environment.reset(**named(environment.reset, columns))
    if said is None or isinstance(said, str):
        return said
    raise RlmError(f"it returned {said!r:.80}", allowed="a text, or None where nothing is added to the prompt")


def stepped(environment: Any, action: str) -> tuple[str, float, bool]:
    """What a world of words answers.

    Raises:
        RlmError: It is no observation, reward and end.
    """
    said = environment.step(action)
    if isinstance(said, tuple) and len(said) == 3:
        observation, reward, done = said
        if isinstance(observation, str) and _a_number(reward) and done in (True, False):
            return observation, float(reward), bool(done)
    raise RlmError(f"it returned {said!r:.80}", allowed="(observation: text, reward: a finite number, done: a bool)")


@dataclass
class Told:
    """What the tools said to a turn.

    Args:
        messages: One per call.
        failures: How many calls failed.
        done: Whether the turn called none, or the environment is done.
    """

    messages: list[Message] = field(default_factory=list)
    failures: int = 0
    done: bool = False


def called(environment: Any, message: Message, functions: Sequence[Callable[..., Any]]) -> Told:
    """What the tools say that a turn calls. What one raises is told to the model, and counted.

    Args:
        environment: With its tools.
        message: The turn.
        functions: Tools beside those of the environment.
    """
    known = {tool.__name__: tool for tool in (*functions, *tools_of(environment))}
    told = Told()
    for call in message.get("tool_calls") or ():
        said, failed = _answer(call.get("function", call), known)
        told.messages.append(said)
        told.failures += failed
    told.done = not told.messages or bool(getattr(environment, "done", False))
    return told


def _answer(call: Mapping[str, Any], known: Mapping[str, Callable[..., Any]]) -> tuple[Message, bool]:
    """What a call is told, and whether it failed."""
    name, failed = call["name"], False
    try:
        if name not in known:
            raise ValueError(f"Tool {name} not found.")
        found = known[name](**call["arguments"])
        if inspect.isawaitable(found):
            found = asyncio.run(_awaited(found))
    except Exception as error:
        found, failed = {"error": str(error)}, True
    return {"role": "tool", "name": name, "content": str(found)}, failed


async def _awaited(said: Any) -> Any:
    return await said


def reward_of(environment: Any) -> float:
    """What an environment with `get_reward` pays for the whole episode.

    Raises:
        RlmError: It is no finite number.
    """
    paid = environment.get_reward()
    if inspect.isawaitable(paid):
        paid = asyncio.run(_awaited(paid))
    if _a_number(paid):
        return float(paid)
    raise RlmError(f"it returned {paid!r:.80}", allowed="a finite number")


def _a_number(x: Any) -> bool:
    """Whether it is a finite number of Python's or numpy's."""
    return isinstance(x, Real) and math.isfinite(x)
