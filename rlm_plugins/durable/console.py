"""Standard output and error of a process that must not end when they cannot be written any more.

A closed terminal, a reader that ended (``| head -1``) and a full disk under ``> log`` make each write an error.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from collections.abc import Iterator

from rlm_plugins.durable import stop_signals

LOST = "console.txt"
"""File of a run folder: why its output could not be written, and what was then meant for standard error."""


class _Descriptor(io.FileIO):
    """A file descriptor whose failed writes are dropped; the first one is noted in the folder of the run."""

    has_failed = False

    def __init__(self, number: int) -> None:
        super().__init__(number, "wb", closefd=False)

    def write(self, data: object) -> int:
        """Write bytes, dropped if they cannot be written; wait for a slow reader unless a signal came."""
        content = bytes(data)  # type: ignore[call-overload]
        try:
            while not stop_signals.current().number or select.select([], [self], [], 0)[1]:
                if select.select([], [self], [], 0.2)[1]:
                    written = super().write(content[: select.PIPE_BUF])  # so much does not wait
                    if written is not None:
                        return written
        except OSError as error:
            self._note(error, content)
        return len(content)

    def _note(self, error: OSError, content: bytes) -> None:
        folder, is_first, self.has_failed = stop_signals.current().folder, not self.has_failed, True
        name = "standard error" if self.fileno() == 2 else "standard output"
        text = f"{name} cannot be written: {error.strerror}; the run goes on without it\n" if is_first else ""
        if self.fileno() == 2:
            text += content.decode(errors="replace")
        if text and folder is not None:
            with contextlib.suppress(OSError), (folder / LOST).open("a", encoding="utf-8") as file:
                file.write(text)


def keep_going(name: str) -> None:
    """Replace ``sys.stdout`` or ``sys.stderr`` by a stream that drops what cannot be written; no other stream."""
    stream, number = getattr(sys, name), {"stdout": 1, "stderr": 2}[name]
    if (
        os.name == "nt"
        or not isinstance(stream, io.TextIOWrapper)
        or isinstance(getattr(stream.buffer, "raw", None), _Descriptor)
    ):
        return
    with contextlib.suppress(OSError, ValueError):
        if stream.fileno() != number:  # captured, by a test for example
            return
        with contextlib.suppress(OSError):
            stream.flush()
        buffer = io.BufferedWriter(_Descriptor(number))
        quiet = io.TextIOWrapper(
            buffer, stream.encoding, stream.errors, line_buffering=True, write_through=stream.write_through
        )
        setattr(sys, name, quiet)


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Let code run to its end whether or not its output can be written; stdout is restored unless lost."""
    stdout = sys.stdout
    keep_going("stdout")
    keep_going("stderr")
    try:
        yield
    finally:
        raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
        if isinstance(raw, _Descriptor) and sys.stdout is not stdout:
            sys.stdout.flush()
            if not raw.has_failed:
                sys.stdout = stdout
