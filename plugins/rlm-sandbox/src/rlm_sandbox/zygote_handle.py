"""The trainer's handle of a zygote: a clean process that forks samples on request."""

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
"""Seconds that a zygote may take to import the preloaded modules."""
THREADS = 512
"""Threads that all samples of a user may have in addition to the user's running ones."""
NOBODY = 65534

BOOT = (
    "import sys, types; package = types.ModuleType('rlm_sandbox'); package.__path__ = [sys.argv.pop(1)];"
    "sys.modules['rlm_sandbox'] = package; from rlm_sandbox.inside.zygote import main; main()"
)
"""Bootstrap code; it bypasses the package's `__init__`, which is for the trainer's side."""


class Zygote:
    """One process that forks samples; the constructor does not wait for it, the first use does.

    Args:
        modules: Installed modules to import in addition to the standard library.
        jail: Command prefix: bubblewrap and its options, or empty.
        unlocked: Whether samples run without a filter (allowed by the user).
    """

    def __init__(self, modules: tuple[str, ...], jail: list[str], unlocked: bool) -> None:
        paths = [path for path in sys.path if path and os.path.isdir(path)] if modules else []
        settings = {"modules": modules, "paths": paths, "open": unlocked}
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            # not -I, which would ignore PYTHONHASHSEED; -P, -s and this environment isolate as well
            self._process = subprocess.Popen(
                [*jail, interpreter(), "-P", "-s", "-S", "-B", "-c", BOOT, str(PACKAGE), json.dumps(settings)],
                env=environment(),
                cwd="/",
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C must reach only the trainer, which ends its zygotes
            )
        except OSError as error:
            self._control.close()
            raise SandboxError(f"{(jail or [interpreter()])[0]} cannot be started: {error}") from None
        finally:
            theirs.close()
        self._deadline = time.monotonic() + STARTING
        self._locks: dict[str, Any] | None = None
        self._used = False
        self.tasks = running_tasks(NOBODY if os.getuid() == 0 else os.getuid()) + THREADS

    def locks(self) -> dict[str, Any]:
        """Return the active locks, once it is ready."""
        if self._locks is None:
            message = self._receive(self._deadline)
            if not message.startswith(b"ready "):
                reason = message.decode(errors="replace").removeprefix("failed ") or "it ended, or took too long"
                raise SandboxError(f"a zygote cannot be started: {reason}")
            self._locks = json.loads(message.removeprefix(b"ready "))
        return self._locks

    def is_alive(self) -> bool:
        """Return True while its process runs."""
        return self._process.poll() is None

    def fork(self) -> socket.socket:
        """Fork a new process in the sandbox and return the trainer's end of its only socket."""
        self.locks()
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._control, [b"fork"], [theirs.fileno()])
        except OSError:
            ours.close()
            raise SandboxError("a zygote has ended: was it killed?") from None
        finally:
            theirs.close()
        self._used = True
        return ours

    def end_samples(self) -> bool:
        """Kill all forked processes; return True once they are gone, if the zygote still works."""
        if not self._used:
            return True
        self._used = False
        with contextlib.suppress(OSError):
            self._control.send(b"end")
        return self._receive(time.monotonic() + STARTING) == b"ended"

    def _receive(self, deadline: float) -> bytes:
        try:
            self._control.settimeout(max(0.001, deadline - time.monotonic()))
            return self._control.recv(4096)
        except OSError:
            return b""

    def detach(self) -> None:
        """Close the parent's control socket in a forked process."""
        self._control.close()

    def close(self) -> None:
        """End the process: it exits when its control socket closes, after killing its samples."""
        self._control.close()
        try:
            self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def interpreter() -> str:
    """Return the path of the Python that runs in the sandbox: this one, without its virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def environment() -> dict[str, str]:
    """Return a zygote's environment: no tokens, no home. A fixed hash seed makes programs repeatable."""
    kept = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
    return {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **kept}


def running_tasks(uid: int) -> int:
    """Count the running threads of a user; RLIMIT_NPROC counts all of them."""
    total = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError):
                if folder.stat().st_uid == uid:
                    total += len(os.listdir(folder / "task"))
    return total
