"""Worker process: start, request, reply and kill, from the side of the trainer."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_TIMEOUT = 120.0
"""Seconds in which a worker must have imported what it needs."""
MINIMAL = ("PATH", "LANG", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Environment variables that every program gets: no tokens, no settings."""


@dataclass(frozen=True)
class Program:
    """Program of a worker: it prints ``ready``, then one line per line of JSON; ``failed …`` ends it.

    Args:
        script: The file, run by path.
        arguments: Of its command line.
        name: Its name in errors.
        hint: What to do where it does not start.
        environment: Names of its environment variables; None: all.
    """

    script: Path
    arguments: tuple[str, ...] = ()
    name: str = "worker"
    hint: str = ""
    environment: tuple[str, ...] | None = MINIMAL


class Worker:
    """One process; `busy` is the number of its request, -1 while it starts, None while it is idle."""

    def __init__(self, program: Program) -> None:
        names = program.environment
        variables = {k: v for k, v in os.environ.items() if names is None or k in names}
        paths = [str(Path(path or ".").resolve()) for path in sys.path]
        # a session of its own: Ctrl-C reaches the trainer alone, which then ends its workers by closing their input
        self._process = subprocess.Popen(
            [sys.executable, "-B", "-P", str(program.script), *program.arguments],
            env={**variables, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._buffer = b""
        self.pid, self.descriptor = self._process.pid, self._stdout.fileno()
        self.busy: int | None = -1
        self.deadline = time.monotonic() + START_TIMEOUT

    def send(self, number: int, request: Sequence[Any], seconds: float) -> bool:
        """Send a request; return False if the worker has ended."""
        try:
            self._stdin.write(json.dumps([*request, seconds]).encode() + b"\n")
            self._stdin.flush()
        except OSError:
            return False
        self.busy, self.deadline = number, time.monotonic() + seconds
        return True

    def read_line(self) -> str | None:
        """Return a line of output, "" if the worker has ended, None if the line is incomplete; reads once."""
        piece = os.read(self.descriptor, 65536)
        self._buffer += piece
        if b"\n" not in self._buffer:
            return None if piece else ""
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode().strip()

    def kill(self) -> None:
        """Kill the process and wait until it has ended."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):  # flushing a last line into a closed pipe
                pipe.close()
