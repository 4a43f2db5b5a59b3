"""Algorithms that combine samples with demonstrations, or match a distribution of rewards."""

from rlm_offpolicy import algorithms
from rlm_offpolicy.prefixes import prefixes
from rlm_offpolicy.trajectory_balance import trajectory_balance
from rlm_plugins import hookimpl


@hookimpl
def rlm_rollouts() -> dict[str, object]:
    """Return the rollout sources of this package by name."""
    return {"prefixes": prefixes}


@hookimpl
def rlm_policy_losses() -> dict[str, object]:
    """Return the policy losses of this package by name."""
    return {"trajectory_balance": trajectory_balance}


@hookimpl
def rlm_algorithms() -> dict[str, object]:
    """Return the algorithms of this package by name."""
    return {"flowrl": algorithms.flowrl, "prefix_rft": algorithms.prefix_rft, "relift": algorithms.relift}
