"""Python programs: a reward by unit tests, run in rlm-sandbox, and the usual data sets."""

from rlm_code.environments import ENVIRONMENTS
from rlm_code.reward import code_tests
from rlm_code.toy_programs import code_drills
from rlm_plugins import hookimpl

__all__ = ["code_tests"]


@hookimpl
def rlm_rewards() -> dict[str, object]:
    """Return the rewards of this package by name."""
    return {"code_tests": code_tests}


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Return the environments of this package by name."""
    return {**ENVIRONMENTS, "code_drills": code_drills}
