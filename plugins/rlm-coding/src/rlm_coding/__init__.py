"""Python programs: a reward by unit tests, run in rlm-sandbox, and the usual data sets."""

from rlm_coding.environments import ENVIRONMENTS
from rlm_coding.reward import code_tests
from rlm_coding.toy_programs import code_drills
from rlm_plugins import hookimpl

__all__ = ["code_tests"]

rlm_rewards = hookimpl(lambda: {"code_tests": code_tests})
rlm_environments = hookimpl(lambda: {**ENVIRONMENTS, "code_drills": code_drills})
