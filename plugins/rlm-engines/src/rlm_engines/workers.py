"""Section `workers`: the worker processes of rewards on the machines of a Ray cluster."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from pydantic import NonNegativeFloat

from rlm_plugins.errors import RecipeError
from rlm_plugins.registry.setting import Section
from rlm_plugins.stage import Stage
from rlm_plugins.workers.pool import Program, Worker, executed_by

MARGIN = 30.0
"""Seconds that Ray may take for a call beyond the time of the request."""


class RayWorker(Worker):
    """A worker on a machine of the cluster: a Ray actor that is a `Worker` there."""

    def __init__(self, program: Program, cpus: float) -> None:
        import ray

        # a second thread kills the process while the first waits for its output
        self.actor, self.is_ready = ray.remote(num_cpus=cpus, max_concurrency=2)(Worker).remote(program), False

    def send(self, request: Sequence[Any], seconds: float) -> bool:
        return bool(self._call(self.actor.send.remote(request, seconds)))

    def read_line(self, seconds: float) -> str | None:
        return self._call(self.actor.read_line.remote(seconds), seconds)

    def kill(self) -> None:
        self._call(self.actor.kill.remote())

    def close(self) -> None:
        import ray

        if self.is_ready:  # else the actor may have no place yet, and would not answer
            self._call(self.actor.close.remote())
        ray.kill(self.actor)

    def _call(self, result: Any, seconds: float = 0.0) -> Any:
        """Return the result of a call; "" if the actor or its machine has ended, None if it is late."""
        import ray

        try:
            return ray.get(result, timeout=seconds + MARGIN)
        except ray.exceptions.GetTimeoutError:
            return None
        except ray.exceptions.RayError:
            return ""


class Workers(Section):
    """Place of the worker processes of rewards with `processes`: this machine, or those of a Ray cluster.

    Args:
        executor: `local`, or `ray`, where a worker that is lost with its machine is replaced on another.
        address: Of the cluster; `auto`: the one that runs on this machine, `local`: one is started for the run.
        cpus: Of each worker, as Ray counts them.
    """

    def __init__(
        self, *, executor: Literal["local", "ray"] = "local", address: str = "auto", cpus: NonNegativeFloat = 1.0
    ) -> None:
        self.executor, self.address, self.cpus = executor, address, cpus

    def check_stage(self, stage: Stage, where: str) -> None:
        """Check that Ray is installed."""
        if self.executor == "ray" and importlib.util.find_spec("ray") is None:
            hint = "pip install ray, or `executor: local`"
            raise RecipeError("`executor: ray` requires Ray, which is not installed", where="workers", hint=hint)

    @contextmanager
    def training(self, stage: Stage, run: Any) -> Iterator[None]:
        """Connect to the cluster, and start workers there.

        Raises:
            RecipeError: There is no cluster at the address.
        """
        if self.executor == "local":
            yield
            return
        import ray

        handler = signal.getsignal(signal.SIGTERM)
        try:
            ray.init(address=self.address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, RuntimeError, ValueError) as error:
            hint = "`ray start --head` on one of its machines, or `address: local`, which starts Ray on this one"
            problem = f"expected a Ray cluster at '{self.address}', got {type(error).__name__}: {error}"
            raise RecipeError(problem, where="workers.address", hint=hint) from None
        finally:
            signal.signal(signal.SIGTERM, handler)  # Ray's ends the process before the run is saved
        try:
            with executed_by(lambda program: RayWorker(program, self.cpus)):
                yield
        finally:
            ray.shutdown()
