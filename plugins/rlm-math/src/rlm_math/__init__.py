"""Mathematics: a guarded answer-verification reward and the usual data sets. Importing this loads no sympy."""

from rlm_math.environments import ENVIRONMENTS, fraction_sums
from rlm_math.reward import math_accuracy
from rlm_plugins import hookimpl

__all__ = ["math_accuracy"]

rlm_rewards = hookimpl(lambda: {"math_accuracy": math_accuracy})
rlm_environments = hookimpl(lambda: {**ENVIRONMENTS, "fraction_sums": fraction_sums})
