"""An environment and a reward from reasoning-gym's tasks. Importing this loads neither reasoning_gym nor torch."""

from rlm_gym.environment import gym
from rlm_gym.reward import gym_score
from rlm_plugins import hookimpl

__all__ = ["gym", "gym_score"]


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Return the environments of this package by name."""
    return {"gym": gym}


@hookimpl
def rlm_rewards() -> dict[str, object]:
    """Return the rewards of this package by name."""
    return {"gym_score": gym_score}
