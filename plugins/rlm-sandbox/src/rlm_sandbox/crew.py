"""Warm zygotes, lent one sample at a time. Who comes back odd is replaced; the next one is warm already."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rlm_sandbox.keeper import Zygote


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
