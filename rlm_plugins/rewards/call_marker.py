"""Marker of the running reward in a file of the run folder: it names the reward that ended a process without an error.

A memory-mapped file costs a microsecond per call, and is complete even if the process is killed.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterator
from pathlib import Path

_SIZE = 512
_NAME = ".reward_call"
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
_map: mmap.mmap | None = None


_HINT = "`processes: 1` beside this reward calls it in a process of its own, which can crash, exit or be killed alone"


@contextlib.contextmanager
def marked_calls(folder: Path, log_line: Callable[[str], None]) -> Iterator[None]:
    """Mark calls of rewards during the block, in a file per process in `folder`.

    Args:
        folder: The run folder.
        log_line: Called with a line for each reward that was running when a process of the last run ended.
    """
    global _map
    for call in interrupted_calls(folder):
        log_line(f"the last process of this run ended without an error during a call of {call}\n  hint: {_HINT}")
    path = folder / f"{_NAME}.{os.environ.get('RANK', '0')}"
    with contextlib.suppress(OSError):  # a read-only or full disk: training does not depend on it
        file = os.open(path, _FLAGS, 0o644)
        try:
            os.write(file, b"\0" * _SIZE)
            _map = mmap.mmap(file, _SIZE)
        finally:
            os.close(file)
    try:
        yield
    finally:
        if _map is not None:
            _map.close()
            _map = None
            path.unlink(missing_ok=True)


def exchange(table: mmap.mmap | None) -> mmap.mmap | None:
    """Set the marker and return the previous one; `rlm race` alternates several runs in one process."""
    global _map
    previous, _map = _map, table
    return previous


@contextlib.contextmanager
def marked(text: str) -> Iterator[None]:
    """Write `text` into the marker during the block."""
    table = _map
    if table is None:
        yield
        return
    data = text.encode()[: _SIZE - 1]
    table[: len(data) + 1] = data + b"\0"
    try:
        yield
    finally:
        if not table.closed:
            table[:1] = b"\0"


def interrupted_calls(folder: Path) -> list[str]:
    """Return the rewards that were running when a process of the last run ended, at most one per process."""
    calls = []
    for file in sorted(folder.glob(f"{_NAME}.*")):
        with contextlib.suppress(OSError):
            text = file.read_bytes()[:_SIZE].partition(b"\0")[0].decode(errors="replace")
            calls += [text] if text else []
    return calls
