"""Self-play: two players with one policy, and tasks that the policy proposes and solves."""

from pathlib import Path

from rlm_plugins import hookimpl
from rlm_plugins.specs import Algorithm, read_algorithms
from rlm_selfplay.both_seats import BothSeats
from rlm_selfplay.duel import duel
from rlm_selfplay.propose_and_solve import ProposeAndSolve
from rlm_selfplay.role_advantages import RoleBaseline, role_whitened
from rlm_selfplay.task_environment import proposed_tasks, role, self_play

__all__ = ["BothSeats", "ProposeAndSolve", "RoleBaseline", "duel", "proposed_tasks", "role_whitened"]

ALGORITHMS = read_algorithms(Path(__file__).parent / "algorithms.toml")
"""Name → algorithm."""


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Return the environments of this package by name."""
    return {"duel": duel, "proposed_tasks": proposed_tasks}


@hookimpl
def rlm_rollouts() -> dict[str, object]:
    """Return the rollout sources of this package by name."""
    return {"both_seats": BothSeats, "propose_and_solve": ProposeAndSolve}


@hookimpl
def rlm_rewards() -> dict[str, object]:
    """Return the rewards of this package by name."""
    return {"role": role, "self_play": self_play}


@hookimpl
def rlm_advantages() -> dict[str, object]:
    """Return the advantages of this package by name."""
    return {"role_baseline": RoleBaseline, "role_whitened": role_whitened}


@hookimpl
def rlm_algorithms() -> dict[str, Algorithm]:
    """Return the algorithms of this package by name."""
    return ALGORITHMS
