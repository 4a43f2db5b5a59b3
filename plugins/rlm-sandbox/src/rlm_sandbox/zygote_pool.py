"""A pool of warm zygotes, leased for one sample at a time; a faulty one is replaced."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from rlm_sandbox.connection import SampleFailure
from rlm_sandbox.interface import Input, Limits, Output, Program
from rlm_sandbox.sample import Sample
from rlm_sandbox.zygote_handle import Zygote


class ZygotePool:
    """One more zygote than samples that may run at once.

    Args:
        size: Number of concurrent samples; further ones wait.
        make: Starts a zygote.
    """

    def __init__(self, size: int, make: Callable[[], Zygote]) -> None:
        self._make, self._slots = make, threading.BoundedSemaphore(size)
        self._idle = deque(make() for _ in range(size + 1))
        self._leased: set[Zygote] = set()
        self._closed = False

    @contextmanager
    def lease(self) -> Iterator[Zygote]:
        """Yield a zygote for one sample. Closing the loop over its outputs early does not count as a fault."""
        with self._slots:
            zygote = self._idle.popleft()
            if not zygote.is_alive():  # killed from outside, for example by the out-of-memory killer
                zygote.close()
                zygote = self._make()
            self._leased.add(zygote)
            healthy = False
            try:
                yield zygote
                healthy = True
            except GeneratorExit:
                healthy = True
                raise
            finally:
                self._give_back(zygote, healthy)

    def _give_back(self, zygote: Zygote, healthy: bool) -> None:
        healthy = zygote.end_samples() and healthy
        self._leased.discard(zygote)
        if self._closed:
            zygote.close()
        elif healthy:
            self._idle.appendleft(zygote)
        else:
            zygote.close()
            self._idle.append(self._make())

    def close(self) -> None:
        """End every zygote; leased ones end when they are returned."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def detach(self) -> None:
        """Close the parent's zygotes in a forked process."""
        for zygote in (*self._idle, *self._leased):
            zygote.detach()


def run_program(
    pool: ZygotePool, program: Program, inputs: Sequence[Input], limits: Limits | None = None
) -> Iterator[Output]:
    """Yield one output per input, as they arrive; see `rlm_sandbox.interface.Sandbox`."""
    limits, num_done = limits or Limits(), 0
    try:
        with pool.lease() as zygote, closing(Sample(zygote, program.source, len(inputs), limits)) as sample:
            for item in inputs:
                yield sample.run(item)
                num_done += 1
    except SampleFailure as failure:
        yield Output(failure.status, error=str(failure))
        for _ in inputs[num_done + 1 :]:
            yield Output("skipped")
