"""Engine `second_process`: a copy of the policy in a second process of this machine, on a device of its own."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pydantic import PositiveInt

from rlm_engines.adapters import TRAINER_SETTINGS
from rlm_plugins.errors import RlmError
from rlm_plugins.lazy import torch
from rlm_plugins.rollout.engine_call import Engine, EngineCompletions, EnginePolicy, Weights


@dataclass(frozen=True)
class TrainerPolicy(EnginePolicy):
    """A policy whose copy decodes as its trainer does, to the bit; the first `sync` sends all weights.

    Args:
        model_class: Class of the transformers model.
        config: Its config.
        defaults: `GenerationConfig` of the model.
        decoding: `GenerationConfig` of the trainer.
        generator: Name, knobs and file of the generator part; the file is empty for an installed plugin, and None
            stands for `transformers.generate`.
        mixed_precision: That of accelerate: `no`, `bf16`.
        prepare: Prepares the copy as the trainer's policy: `ForwardPasses.preparation`.
    """

    model_class: type
    config: Any
    defaults: Any
    decoding: Any
    generator: tuple[str, dict[str, Any], str] | None
    mixed_precision: str
    prepare: Callable[[Any], None] | None


class SecondProcess(Engine):
    """A copy of the policy in a second process of this machine, which samples with transformers.

    It is the engine `reference` there; for a `TrainerPolicy` it decodes as the trainer does.

    Args:
        device: Where it decodes.
        threads: Its threads; None: as many as this process has.
    """

    trainer_settings = TRAINER_SETTINGS
    where = "engine"
    hint = "leave `engine` out: the trainer samples; `--resume` continues the run"

    def __init__(self, *, device: str = "cpu", threads: PositiveInt | None = None) -> None:
        self._device, self._threads = device, threads
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its number, of a process that has started."""
        assert self._process is not None
        return self._process.pid

    def start(self, policy: EnginePolicy) -> None:
        """Start the process.

        Raises:
            RlmError: The policy cannot be copied, or the process ended.
        """
        self._connection, worker_connection = Pipe()
        paths = [str(Path(path or ".").resolve()) for path in sys.path]
        threads = str(self._threads or torch.get_num_threads())
        arguments = [str(worker_connection.fileno()), str(os.getpid()), threads, self._device]
        # a session of its own: Ctrl-C reaches the trainer alone, which then ends this process
        self._process = subprocess.Popen(
            [sys.executable, "-B", "-P", "-m", "rlm_engines.second_process_worker", *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": threads},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[worker_connection.fileno()],
            start_new_session=True,
        )
        worker_connection.close()
        self._call("start", policy)

    def sync(self, weights: Weights, version: int) -> None:
        """Send the folder of the adapter, or weights; of a `TrainerPolicy` first all, then those that are trained."""
        if isinstance(weights, Path):
            self._call("sync", weights, version)
        else:
            self._call("sync", None, version, tensors=dict(weights))

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Mapping[str, Any]) -> EngineCompletions:
        completions: EngineCompletions = self._call("generate", prompts, dict(sampling))
        return completions

    def score(self, sequences: Sequence[Sequence[int]]) -> list[list[float]]:
        rows: list[list[float]] = self._call("score", sequences)
        return rows

    def close(self) -> None:
        """Kill the process and wait until it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._connection.close()

    def _call(self, method: str, *arguments: Any, tensors: Mapping[str, torch.Tensor] | None = None) -> Any:
        """Return the result of a method of the engine in the process."""
        try:
            self._connection.send_bytes(pickle.dumps((method, arguments)))
            send_tensors(self._connection, tensors or {})
            reply = self._connection.recv()
        except (EOFError, OSError):
            problem = f"expected completions of the process that generates on '{self._device}', but it {self._end()}"
            raise RlmError(problem, where=self.where, hint=f"is memory short? {self.hint}") from None
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            problem = f"the policy cannot be copied into a second process: {error}"
            raise RlmError(problem, where=self.where, hint=self.hint) from None
        if type(reply) is RlmError:
            problem = f"the process that generates on '{self._device}' {reply.problem}"
            raise RlmError(problem, where=self.where, hint=self.hint)
        if isinstance(reply, RlmError):  # of the generator, or a divergence
            raise reply
        return reply

    def _end(self) -> str:
        """Return a clause on how the process ended."""
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout=5)
            return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return "closed its connection"


def send_tensors(connection: Connection, tensors: Mapping[str, torch.Tensor]) -> None:
    """Send named tensors, one after the other.

    Args:
        connection: To the receiver, which calls `receive_tensors`.
        tensors: On any device.
    """
    connection.send([(name, x.dtype, tuple(x.shape)) for name, x in tensors.items()])
    for x in tensors.values():
        if x.numel():
            connection.send_bytes(_bytes_of(x.detach().cpu().contiguous()))


def receive_tensors(connection: Connection) -> dict[str, torch.Tensor]:
    """Return the tensors that `send_tensors` sent, on the CPU."""
    tensors = {}
    for name, dtype, shape in connection.recv():
        tensors[name] = torch.empty(shape, dtype=dtype)
        if tensors[name].numel():
            connection.recv_bytes_into(_bytes_of(tensors[name]))
    return tensors


def _bytes_of(x: torch.Tensor) -> Any:
    """Return the memory of a contiguous tensor on the CPU as an array of bytes."""
    return x.reshape(-1).view(torch.uint8).numpy()
