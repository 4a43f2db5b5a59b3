"""Process that generates, from the side of the trainer: start, call, end."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from rlm_plugins.errors import RlmError

WHERE = "trainer.generation_device"
HINT = "leave `generation_device` out: the same samples without a second process; `--resume` continues the run"


class GenerationProcess:
    """One worker process with a copy of the policy; a thread of the trainer sends it one message after the other.

    Args:
        device: Where it decodes, for errors.
        threads: Its threads.
    """

    def __init__(self, device: str, threads: int) -> None:
        self._device = device
        self._connection, worker_connection = Pipe()
        paths = [str(Path(path or ".").resolve()) for path in sys.path]
        arguments = [str(worker_connection.fileno()), str(os.getpid()), str(threads)]
        # a session of its own: Ctrl-C reaches the trainer alone, which then ends this process
        self._process = subprocess.Popen(
            [sys.executable, "-B", "-P", "-m", "rlm_engines.generation_worker", *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": str(threads)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[worker_connection.fileno()],
            start_new_session=True,
        )
        worker_connection.close()
        self.pid, self._thread = self._process.pid, ThreadPoolExecutor(1)

    def call(self, message: Any, tensors: Mapping[str, torch.Tensor]) -> Future[Any]:
        """Send a message with tensors after those before it, and return its reply as a future.

        The future raises :class:`rlm_plugins.errors.RlmError` if the process has ended or failed.
        """
        return self._thread.submit(self._call, message, tensors)

    def _call(self, message: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
        try:
            self._connection.send_bytes(pickle.dumps(message))
            send_tensors(self._connection, tensors)
            reply = self._connection.recv()
        except (EOFError, OSError):
            problem = f"expected completions of the process that generates on '{self._device}', but it {self._end()}"
            raise RlmError(problem, where=WHERE, hint=f"is memory short? {HINT}") from None
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            problem = f"the policy cannot be copied into a second process: {error}"
            raise RlmError(problem, where=WHERE, hint=HINT) from None
        if type(reply) is RlmError:
            raise RlmError(f"the process that generates on '{self._device}' {reply.problem}", where=WHERE, hint=HINT)
        if isinstance(reply, RlmError):  # of the generator, or a divergence
            raise reply
        return reply

    def _end(self) -> str:
        """Return a clause on how the process ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout=5)
            return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return "closed its connection"

    def close(self) -> None:
        """Kill the process and wait until it has ended; futures that are not done are canceled."""
        self._process.kill()
        self._process.wait()
        self._thread.shutdown(cancel_futures=True)
        self._connection.close()


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
