"""Dense rewards: what a step or a token of an answer was worth."""

from rlm_plugins import hookimpl


@hookimpl
def rlm_rewards() -> dict[str, object]:
    return {}


@hookimpl
def rlm_shapers() -> dict[str, object]:
    return {}


@hookimpl
def rlm_advantages() -> dict[str, object]:
    return {}


@hookimpl
def rlm_rollouts() -> dict[str, object]:
    return {}


@hookimpl
def rlm_algorithms() -> dict[str, object]:
    return {}
