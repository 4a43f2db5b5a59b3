"""Mathematics: a guarded answer-verification reward and the usual data sets. Importing this loads no sympy."""

from rlm_math.environments import ENVIRONMENTS, fraction_sums
from rlm_math.reward import math_accuracy
from rlm_plugins import hookimpl

__all__ = ["math_accuracy"]


@hookimpl
def rlm_rewards() -> dict[str, object]:
    """Return the rewards of this package by name."""
    return {"math_accuracy": math_accuracy}


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Return the environments of this package by name."""
    return {**ENVIRONMENTS, "fraction_sums": fraction_sums}
