"""An environment and a reward from reasoning-gym's tasks. Importing this loads neither reasoning_gym nor torch."""

from rlm_gym.environment import gym
from rlm_gym.reward import gym_score
from rlm_plugins import hookimpl

__all__ = ["gym", "gym_score"]

rlm_environments = hookimpl(lambda: {"gym": gym})
rlm_rewards = hookimpl(lambda: {"gym_score": gym_score})
