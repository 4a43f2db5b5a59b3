"""Python programs: a reward by unit tests, run in rlm-sandbox, and the data sets people train on."""

from rlm_code.drills import code_drills
from rlm_code.reward import code_tests
from rlm_code.worlds import WORLDS
from rlm_plugins import hookimpl

__all__ = ["code_tests"]


@hookimpl
def rlm_rewards() -> dict[str, object]:
    return {"code_tests": code_tests}


@hookimpl
def rlm_environments() -> dict[str, object]:
    return {**WORLDS, "code_drills": code_drills}
