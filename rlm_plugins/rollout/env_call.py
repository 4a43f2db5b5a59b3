"""Calls of an environment under a timeout; a failure becomes the fault of its episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rlm_plugins.environment import Environment, Episode
from rlm_plugins.errors import RlmError
from rlm_plugins.workers.time_limit import CallTimeout, time_limit

T = TypeVar("T")


def call_environment(episode: Episode, method: str, call: Callable[[], T]) -> T | None:
    """Return `call()` within the environment's timeout; on failure, set the episode's fault and return None.

    A call that timed out leaves the environment in an unknown state, so the episode drops it.

    Args:
        episode: Of the environment.
        method: Name of the called method, for the message.
        call: Calls it.
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
