"""The sandbox of this machine: it starts on first use, attacks itself, and raises if an attack succeeds."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress

from rlm_sandbox import bubblewrap
from rlm_sandbox.canaries import CANARIES, is_blocked
from rlm_sandbox.inside.syscalls import MACHINES
from rlm_sandbox.interface import Input, Limits, Output, Program, SandboxError
from rlm_sandbox.zygote_handle import Zygote
from rlm_sandbox.zygote_pool import ZygotePool, run_program

ALLOW = "RLM_ALLOW_UNSANDBOXED_CODE"
"""Environment variable that allows running without a sandbox; it cannot be set in a recipe."""
CHOICES = f"""the options:
  - Linux on x86-64 or aarch64, with seccomp; on macOS and Windows a virtual machine, a container or WSL
  - a remote sandbox: any object with the `run` of rlm_sandbox.Sandbox
  - at your own risk, on a disposable machine: {ALLOW}=1 runs programs with the available locks"""


class Local:
    """Sandbox of processes that can compute and do nothing else.

    Args:
        size: Number of concurrent samples; by default this process's share of the machine's cores.
        modules: Installed modules that programs may import in addition to the standard library (``numpy``).
        bubblewrap: Whether to add bubblewrap, where it works.
    """

    def __init__(self, size: int | None = None, modules: Sequence[str] = (), *, bubblewrap: bool = True) -> None:
        self.size, self.modules = size or share_of_cores(), tuple(modules)
        self._bubblewrap = bubblewrap
        self.reset()
        _instances.add(self)

    def reset(self) -> None:
        """Return to the state before the start; also used in forked processes."""
        self._starting = threading.Lock()
        self._pool: ZygotePool | None = None
        self.status_line = ""
        """The active locks, in one line, once started."""
        self.sandboxed = False
        """True if isolated: False before the start, and if the user allowed to run without."""

    def run(self, program: Program, inputs: Sequence[Input], limits: Limits | None = None) -> Iterator[Output]:
        """Run a program; see `Sandbox.run`. After an input that is late, dies or is garbled, the others are skipped.

        Raises:
            SandboxError: The machine cannot isolate programs.
        """
        self.start()
        assert self._pool is not None
        yield from run_program(self._pool, program, inputs, limits or Limits())

    def start(self) -> None:
        """Start: locks, canaries, and one line on standard error; a second call does nothing.

        Raises:
            SandboxError: A lock is missing. No program has been run.
        """
        with self._starting:
            if self._pool is not None:
                return
            try:
                self._pool, self.status_line, self.sandboxed = *self._open(), True
            except SandboxError as error:
                if os.environ.get(ALLOW) != "1" or sys.platform != "linux":
                    raise SandboxError(f"programs cannot be isolated here: {error}\n{CHOICES}") from None
                self._pool = ZygotePool(self.size, lambda: Zygote(self.modules, [], unlocked=True))
                self.status_line = f"code sandbox: NONE, since {ALLOW} is set. {error}"
            if os.environ.get("LOCAL_RANK", "0") == "0":
                print(self.status_line, file=sys.stderr, flush=True)

    def _open(self) -> tuple[ZygotePool, str]:
        if sys.platform != "linux" or os.uname().machine not in MACHINES:
            raise SandboxError(f"no locks for {sys.platform} on {os.uname().machine}")
        command = bubblewrap.command(self.modules) if self._bubblewrap else []
        if command:
            with suppress(SandboxError):
                return self._open_pool(command, ", bubblewrap")
        return self._open_pool([], "")

    def _open_pool(self, command: list[str], suffix: str) -> tuple[ZygotePool, str]:
        pool = ZygotePool(self.size, lambda: Zygote(self.modules, command, unlocked=False))
        try:
            with pool.lease() as zygote:
                locks = zygote.locks()
            escaped = [name for name, canary in CANARIES.items() if not is_blocked(name, run_program(pool, *canary))]
            if escaped:
                raise SandboxError(f"the self-test succeeded with {', '.join(escaped)}")
        except BaseException:
            pool.close()
            raise
        landlock = f", Landlock {locks['landlock']}" if locks["landlock"] else ""
        count = len(CANARIES)
        line = f"code sandbox: seccomp{landlock}{suffix}, user {locks['uid']}; {count}/{count} canaries caught"
        return pool, line

    def close(self) -> None:
        """End all processes; the next use starts again."""
        if self._pool is not None:
            self._pool.close()
        self.reset()

    def detach(self) -> None:
        """Close the parent's zygotes in a forked process, which will start its own."""
        if self._pool is not None:
            self._pool.detach()
        self.reset()


_instances: weakref.WeakSet[Local] = weakref.WeakSet()
_shared: dict[tuple[int, tuple[str, ...]], Local] = {}
_lock = threading.Lock()


def shared(size: int | None = None, modules: Sequence[str] = ()) -> Local:
    """Return the sandbox of this process with these arguments, see `Local`. It starts on first use."""
    key = (size or share_of_cores(), tuple(modules))
    with _lock:
        if key not in _shared:
            _shared[key] = Local(*key)
        return _shared[key]


@atexit.register
def close_all() -> None:
    """End the zygotes of this process."""
    for local in list(_instances):
        local.close()


def _forked() -> None:
    global _lock
    _lock = threading.Lock()
    for local in list(_instances):
        local.detach()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def share_of_cores() -> int:
    """Return this process's share of the cores: all, divided by the processes of a launch."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
