"""A call of an environment: within its time, and a failure is a fault of the episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rlm_plugins.environment import Environment, Episode
from rlm_plugins.errors import RlmError
from rlm_plugins.rewards.timeout import Late, within

T = TypeVar("T")


def guarded(episode: Episode, what: str, call: Callable[[], T]) -> T | None:
    """`call()` within the time of the environment; if it fails, None, and the episode knows the fault.

    A call that is late goes on behind our back, and its environment with it: so the episode lets go of that.

    Args:
        episode: Whose environment it is.
        what: The name of what is called.
        call: Calls it.
    """
    environment, turn = episode.environment, len(episode.turn_ends)
    try:
        return within(getattr(environment, "seconds", Environment.seconds), call)
    except (Exception, SystemExit) as error:
        kind = type(environment)
        said = f" after {episode.messages[-1]['content']!r:.80}" if episode.messages else ""
        problem = error.problem if isinstance(error, RlmError) else f"{type(error).__name__}: {error}"
        episode.fault = RlmError(
            f"`{what}` failed in turn {turn}{said}: {problem}",
            where="the environment" if environment is None else f"environment {kind.__name__} ({kind.__module__})",
            allowed=error.allowed if isinstance(error, RlmError) else "",
        )
        episode.fault.__cause__ = error
        if isinstance(error, Late):
            episode.environment = None
        return None
