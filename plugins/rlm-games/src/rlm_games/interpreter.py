"""A Python interpreter as a tool, behind rlm-sandbox; for problems of one's own data set."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from rlm_plugins.builtin.environments import dataset
from rlm_plugins.environment import Environment
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec


class Interpreter(Environment):
    """A tool that runs programs, each from its start: nothing is kept between two calls."""

    turns = 8

    def reset(self) -> None:
        """Nothing of a row. What a tool raises is told to the model; that no program can be run here, to the person.

        Raises:
            SandboxError: The machine cannot keep programs in.
        """
        from rlm_sandbox import shared

        shared().start()

    def python(self, code: str) -> str:
        """Runs a Python program and returns what it prints.

        Args:
            code: The program. It can compute, and neither read files nor reach the network.

        Returns:
            Its standard output, or the error that ended it.
        """
        from rlm_sandbox import Program, Stdin, shared

        (output,) = shared().run(Program(code), [Stdin()])
        if output.status == "ok":
            return str(output.value)[:LONGEST]
        return f"{output.status}: {output.error}"[:LONGEST].rstrip(": ")


LONGEST = 2000
"""Characters of output that the model is shown."""


def interpreter(*, data: dict[str, Any]) -> EnvironmentSpec:
    """The problems of a data set, and Python to work them out with: the tool `python(code)`.

    `data` holds the knobs of the environment `dataset` (`path`, `columns`, `test_rows`, …), which gives the rows; score
    the answers by any reward that names their columns. Programs run in rlm-sandbox; where that refuses, the run stops.
    """
    require_sandbox()
    if "path" not in data:
        raise RecipeError("it names no `path`", where="environment.data", allowed="the knobs of `dataset`")
    rows = dataset(**data)
    return EnvironmentSpec(train=rows.train, test=rows.test, environment=Interpreter)


def require_sandbox() -> None:
    """Programs run in rlm-sandbox and nowhere else.

    Raises:
        RecipeError: It is not installed.
    """
    if find_spec("rlm_sandbox") is None:
        problem, hint = "programs run in rlm-sandbox, which is not installed", "pip install 'rlm-games[interpreter]'"
        raise RecipeError(problem, where="environment", hint=hint)
