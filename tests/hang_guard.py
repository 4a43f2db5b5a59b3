"""Guard against hangs: no test may depend on how fast or how busy a machine is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

CPU_SECONDS = 60.0
"""About a hundred times what the guarded code takes, and far less than an algorithm of a higher order would."""


@contextmanager
def hang_guard() -> Iterator[None]:
    """Raise AssertionError if the block took a minute of this process's own CPU time."""
    start = time.process_time()
    yield
    assert time.process_time() - start < CPU_SECONDS
