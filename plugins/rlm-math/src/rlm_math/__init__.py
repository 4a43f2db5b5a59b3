"""Mathematics: a reward behind a guard, and the data sets people train on. Importing this loads no sympy."""

from rlm_math.fraction_sums import fraction_sums
from rlm_math.reward import math_accuracy
from rlm_math.worlds import WORLDS
from rlm_plugins import hookimpl

__all__ = ["math_accuracy"]


@hookimpl
def rlm_rewards() -> dict[str, object]:
    return {"math_accuracy": math_accuracy}


@hookimpl
def rlm_environments() -> dict[str, object]:
    return {**WORLDS, "fraction_sums": fraction_sums}
