"""A worker as its trainer sees it: a process that is handed a question, heard, and ended."""

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

STARTING = 120.0
"""Seconds a worker may take to import what it needs."""
BARE = ("PATH", "LANG", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""What every program needs of our environment: no tokens, no settings."""


@dataclass(frozen=True)
class Program:
    """What a worker runs: it says ``ready``, then answers each line of JSON with one line; ``failed …`` ends it.

    Args:
        script: The file, run by path.
        arguments: Of its command line.
        name: What it is called in an error.
        hint: What to do where it does not start.
        environment: Names of the variables it is given; None: all.
    """

    script: Path
    arguments: tuple[str, ...] = ()
    name: str = "worker"
    hint: str = ""
    environment: tuple[str, ...] | None = BARE


class Worker:
    """One process; `busy` is the number of its question, -1 while it starts, None when it waits for one."""

    def __init__(self, program: Program) -> None:
        kept = program.environment
        given = {k: v for k, v in os.environ.items() if kept is None or k in kept}
        paths = [str(Path(path or ".").resolve()) for path in sys.path]
        # a session of its own: Ctrl-C is for the trainer, which then ends its workers by closing their input
        self._process = subprocess.Popen(
            [sys.executable, "-B", "-P", str(program.script), *program.arguments],
            env={**given, "PYTHONPATH": os.pathsep.join(paths), "PYTHONHASHSEED": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        self._heard = b""
        self.pid, self.descriptor = self._process.pid, self._stdout.fileno()
        self.busy: int | None = -1
        self.deadline = time.monotonic() + STARTING

    def ask(self, number: int, question: Sequence[Any], seconds: float) -> bool:
        """Hands over a question; False when the worker has gone."""
        try:
            self._stdin.write(json.dumps([*question, seconds]).encode() + b"\n")
            self._stdin.flush()
        except OSError:
            return False
        self.busy, self.deadline = number, time.monotonic() + seconds
        return True

    def hear(self) -> str | None:
        """A line once it is there; empty when the worker has gone. Never waits longer than its caller knows to."""
        piece = os.read(self.descriptor, 65536)
        self._heard += piece
        if b"\n" not in self._heard:
            return None if piece else ""
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode().strip()

    def end(self) -> None:
        """Kills it, and waits until it is gone."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._stdin, self._stdout):
            with contextlib.suppress(OSError):  # a last line that nobody reads any more
                pipe.close()
