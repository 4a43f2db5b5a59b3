"""Warm zygotes, lent one sample at a time. Who comes back odd is replaced; the next one is warm already."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from rlm_sandbox.conversation import Odd
from rlm_sandbox.interface import Input, Limits, Output, Program
from rlm_sandbox.keeper import Zygote
from rlm_sandbox.sample import Sample


class Crew:
    """As many zygotes as samples may run at once, and one more.

    Args:
        size: Samples at once; who comes later waits.
        make: Starts a zygote.
    """

    def __init__(self, size: int, make: Callable[[], Zygote]) -> None:
        self._make, self._places = make, threading.BoundedSemaphore(size)
        self._idle = deque(make() for _ in range(size + 1))
        self._lent: set[Zygote] = set()
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[Zygote]:
        """A zygote for one sample. Ending the loop over its outputs early is no reason to replace it."""
        with self._places:
            zygote = self._idle.popleft()
            if not zygote.alive():  # somebody killed it, the system perhaps, for memory
                zygote.close()
                zygote = self._make()
            self._lent.add(zygote)
            fit = False
            try:
                yield zygote
                fit = True
            except GeneratorExit:
                fit = True
                raise
            finally:
                self._take_back(zygote, fit)

    def _take_back(self, zygote: Zygote, fit: bool) -> None:
        fit = zygote.end_samples() and fit
        self._lent.discard(zygote)
        if self._closed:
            zygote.close()
        elif fit:
            self._idle.appendleft(zygote)
        else:
            zygote.close()
            self._idle.append(self._make())

    def close(self) -> None:
        """Ends every zygote; those that are lent follow when they come back."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def forget(self) -> None:
        """In a forked process: they are the parent's."""
        for zygote in (*self._idle, *self._lent):
            zygote.forget()


def answers(crew: Crew, program: Program, inputs: Sequence[Input], limits: Limits | None = None) -> Iterator[Output]:
    """One output per input, as they come; see `rlm_sandbox.interface.Sandbox`."""
    limits, place = limits or Limits(), 0
    try:
        with crew.lend() as zygote, closing(Sample(zygote, program.source, len(inputs), limits)) as sample:
            for given in inputs:
                yield sample.answer(given)
                place += 1
    except Odd as odd:
        yield Output(odd.status, error=str(odd))
        for _ in inputs[place + 1 :]:
            yield Output("skipped")
