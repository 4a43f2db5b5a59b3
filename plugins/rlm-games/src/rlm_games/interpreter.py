"""A Python interpreter as a tool, in rlm-sandbox, for prompts of any data set."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from rlm_plugins.builtin.dataset_environment import dataset
from rlm_plugins.environment import Environment
from rlm_plugins.errors import RecipeError
from rlm_plugins.specs import EnvironmentSpec


class Interpreter(Environment):
    """Environment with a Python interpreter as its only tool; no state is kept between two calls."""

    turns = 8

    def reset(self) -> None:
        """Start the sandbox. A tool's exceptions go to the model, so a missing sandbox must fail here.

        Raises:
            SandboxError: The machine cannot isolate programs.
        """
        from rlm_sandbox import shared

        shared().start()

    def python(self, code: str) -> str:
        """Runs a Python program and returns what it prints.

        Args:
            code: The program. It can compute, and neither read files nor reach the network.

        Returns:
            Its standard output, or the error that ended it.
        """  # the tool's description in the prompt, hence no change of its text
        from rlm_sandbox import Program, Stdin, shared

        (output,) = shared().run(Program(code), [Stdin()])
        if output.status == "ok":
            return str(output.value)[:MAX_OUTPUT_LENGTH]
        return f"{output.status}: {output.error}"[:MAX_OUTPUT_LENGTH].rstrip(": ")


MAX_OUTPUT_LENGTH = 2000
"""Largest number of characters of output in an observation."""


def interpreter(*, data: dict[str, Any]) -> EnvironmentSpec:
    """Build an environment from a data set, with Python as the tool `python(code)`.

    `data` holds the knobs of the environment `dataset` (`path`, `columns`, `test_rows`, …), which provides the
    examples. Any reward that names their columns can score the answers. Programs run in rlm-sandbox; without it the run
    stops.
    """
    require_sandbox()
    if "path" not in data:
        raise RecipeError("`data` requires `path`", where="environment.data", allowed="the knobs of `dataset`")
    spec = dataset(**data)
    return EnvironmentSpec(train=spec.train, test=spec.test, environment=Interpreter)


def require_sandbox() -> None:
    """Check that rlm-sandbox is installed, the only place where programs run.

    Raises:
        RecipeError: It is not installed.
    """
    if find_spec("rlm_sandbox") is None:
        problem, hint = "running programs requires rlm-sandbox", "pip install 'rlm-games[interpreter]'"
        raise RecipeError(problem, where="environment", hint=hint)
