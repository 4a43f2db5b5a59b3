"""A zygote as its trainer sees it: a process started clean, asked to fork, and ended."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rlm_sandbox.interface import SandboxError

PACKAGE = Path(__file__).parent
STARTING = 120.0
"""Seconds a zygote may take to import what programs need."""
THREADS = 512
"""Threads that all samples of a user may have beside what that user runs already."""
NOBODY = 65534

BOOT = (
    "import sys, types; package = types.ModuleType('rlm_sandbox'); package.__path__ = [sys.argv.pop(1)];"
    "sys.modules['rlm_sandbox'] = package; from rlm_sandbox.inside.zygote import main; main()"
)
"""The package's own first file, which is for this side of the wall, is passed by."""


class Zygote:
    """One process that forks samples; `start` does not wait for it, the first use does.

    Args:
        modules: Installed modules to import beside the standard library.
        jail: Words before the command: bubblewrap and its settings, or none.
        unlocked: Whether samples run without a filter (a person allowed it).
    """

    def __init__(self, modules: tuple[str, ...], jail: list[str], unlocked: bool) -> None:
        paths = [path for path in sys.path if path and os.path.isdir(path)] if modules else []
        settings = {"modules": modules, "paths": paths, "open": unlocked}
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            # no -I: it would ignore the one variable that is set; -P, -s and this environment isolate as well
            self._process = subprocess.Popen(
                [*jail, interpreter(), "-P", "-s", "-S", "-B", "-c", BOOT, str(PACKAGE), json.dumps(settings)],
                env=environment(),
                cwd="/",
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the trainer, which ends its zygotes
            )
        except OSError as error:
            self._control.close()
            raise SandboxError(f"{(jail or [interpreter()])[0]} cannot be started: {error}") from None
        finally:
            theirs.close()
        self._deadline = time.monotonic() + STARTING
        self._holds: dict[str, Any] | None = None
        self._used = False
        self.tasks = running_tasks(NOBODY if os.getuid() == 0 else os.getuid()) + THREADS

    def holds(self) -> dict[str, Any]:
        """What it gave up, once it is ready.

        Raises:
            SandboxError: It did not start.
        """
        if self._holds is None:
            word = self._hear(self._deadline)
            if not word.startswith(b"ready "):
                reason = word.decode(errors="replace").removeprefix("failed ") or "it ended, or took too long"
                raise SandboxError(f"no zygote can be started: {reason}")
            self._holds = json.loads(word.removeprefix(b"ready "))
        return self._holds

    def alive(self) -> bool:
        """Whether its process is there."""
        return self._process.poll() is None

    def fork(self) -> socket.socket:
        """A new process beyond the wall; returns our end of the only line to it."""
        self.holds()
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._control, [b"fork"], [theirs.fileno()])
        except OSError:
            ours.close()
            raise SandboxError("a zygote has ended: has somebody killed it?") from None
        finally:
            theirs.close()
        self._used = True
        return ours

    def end_samples(self) -> bool:
        """Ends everything that was forked; returns when it is gone, and whether the zygote is well."""
        if not self._used:
            return True
        self._used = False
        with contextlib.suppress(OSError):
            self._control.send(b"end")
        return self._hear(time.monotonic() + STARTING) == b"ended"

    def _hear(self, deadline: float) -> bytes:
        try:
            self._control.settimeout(max(0.001, deadline - time.monotonic()))
            return self._control.recv(4096)
        except OSError:
            return b""

    def forget(self) -> None:
        """In a forked process: lets go of a zygote that is the parent's."""
        self._control.close()

    def close(self) -> None:
        """Ends it: it goes when its control line closes, and takes its samples along."""
        self._control.close()
        try:
            self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def interpreter() -> str:
    """The Python that runs beyond the wall: ours, without its virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def environment() -> dict[str, str]:
    """All that a zygote inherits: no tokens, no home. Hashes are the same in each, so a program is repeatable."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **kept}


def running_tasks(uid: int) -> int:
    """Threads that a user has running: the limit of a process counts them all."""
    total = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if folder.stat().st_uid == uid:
                    total += len(os.listdir(folder / "task"))
    return total
