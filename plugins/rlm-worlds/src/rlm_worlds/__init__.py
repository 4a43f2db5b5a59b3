"""Generated puzzles with verified solutions, and questions for a search tool over a local index."""

from rlm_plugins import hookimpl
from rlm_worlds.environments import countdown, knights, maze
from rlm_worlds.reward import world_score
from rlm_worlds.search import search_facts

__all__ = ["countdown", "knights", "maze", "search_facts", "world_score"]


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Return the environments of this package by name."""
    return {"knights": knights, "countdown": countdown, "maze": maze, "search_facts": search_facts}


@hookimpl
def rlm_rewards() -> dict[str, object]:
    """Return the rewards of this package by name."""
    return {"world_score": world_score}
