"""Self-play: two players with one policy, and tasks that the policy proposes and solves."""

from pathlib import Path

from rlm_plugins import hookimpl
from rlm_plugins.specs import read_algorithms
from rlm_selfplay.duel import BothSeats, duel
from rlm_selfplay.propose_and_solve import ProposeAndSolve
from rlm_selfplay.role_advantages import RoleBaseline, role_whitened
from rlm_selfplay.task_environment import proposed_tasks, role, self_play

__all__ = ["BothSeats", "ProposeAndSolve", "RoleBaseline", "duel", "proposed_tasks", "role_whitened"]

ALGORITHMS = read_algorithms(Path(__file__).parent / "algorithms.toml")
"""Name → algorithm."""

rlm_environments = hookimpl(lambda: {"duel": duel, "proposed_tasks": proposed_tasks})
rlm_rollouts = hookimpl(lambda: {"both_seats": BothSeats, "propose_and_solve": ProposeAndSolve})
rlm_rewards = hookimpl(lambda: {"role": role, "self_play": self_play})
rlm_advantages = hookimpl(lambda: {"role_baseline": RoleBaseline, "role_whitened": role_whitened})
rlm_algorithms = hookimpl(lambda: ALGORITHMS)
