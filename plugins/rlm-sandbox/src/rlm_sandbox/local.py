"""The sandbox of this machine: it starts when it is first used, attacks itself, and refuses where that succeeds."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress

from rlm_sandbox import jail
from rlm_sandbox.canaries import CANARIES, caught
from rlm_sandbox.crew import Crew, answers
from rlm_sandbox.inside.syscalls import MACHINES
from rlm_sandbox.interface import Input, Limits, Output, Program, SandboxError
from rlm_sandbox.keeper import Zygote

ALLOW = "RLM_ALLOW_UNSANDBOXED_CODE"
"""An environment variable: a person sets it, no recipe can."""
CHOICES = f"""the choices:
  - Linux on x86-64 or aarch64, with seccomp; on macOS and Windows a virtual machine, a container or WSL
  - a sandbox elsewhere: anything with the `run` of rlm_sandbox.Sandbox
  - at your own risk, on a machine that holds nothing of worth: {ALLOW}=1 runs programs with what locks there are"""


class Local:
    """Runs programs in processes that can compute and nothing else.

    Args:
        size: Samples at once; by default this process's share of the machine's cores.
        modules: Installed modules that programs may import beside the standard library (``numpy``).
        bubblewrap: Whether to put it around, where it works.
    """

    def __init__(self, size: int | None = None, modules: Sequence[str] = (), *, bubblewrap: bool = True) -> None:
        self.size, self.modules = size or share_of_cores(), tuple(modules)
        self._bubblewrap = bubblewrap
        self.reset()
        _all.add(self)

    def reset(self) -> None:
        """As if it had never been started; what a forked process does with its parent's."""
        self._starting = threading.Lock()
        self._crew: Crew | None = None
        self.line = ""
        """What holds, in one line, once it has started."""
        self.sandboxed = False
        """Whether it holds: False before the start, and where a person allowed to run without."""

    def run(self, program: Program, inputs: Sequence[Input], limits: Limits | None = None) -> Iterator[Output]:
        """See `Sandbox.run`. After an input that is late, dies or is garbled, the others are skipped.

        Raises:
            SandboxError: The machine cannot keep programs in.
        """
        self.start()
        assert self._crew is not None
        yield from answers(self._crew, program, inputs, limits or Limits())

    def start(self) -> None:
        """Locks, canaries, and one line on the standard error; nothing the second time.

        Raises:
            SandboxError: Something is missing. Nothing has been run.
        """
        with self._starting:
            if self._crew is not None:
                return
            try:
                self._crew, self.line, self.sandboxed = *self._opened(), True
            except SandboxError as error:
                if os.environ.get(ALLOW) != "1" or sys.platform != "linux":
                    raise SandboxError(f"programs of a model are not run here: {error}\n{CHOICES}") from None
                self._crew = Crew(self.size, lambda: Zygote(self.modules, [], unlocked=True))
                self.line = f"code sandbox: NONE, since {ALLOW} is set. {error}"
            if os.environ.get("LOCAL_RANK", "0") == "0":
                print(self.line, file=sys.stderr, flush=True)

    def _opened(self) -> tuple[Crew, str]:
        if sys.platform != "linux" or os.uname().machine not in MACHINES:
            raise SandboxError(f"there are no locks for {sys.platform} on {os.uname().machine}")
        command = jail.command(self.modules) if self._bubblewrap else []
        if command:
            with suppress(SandboxError):
                return self._tried(command, ", bubblewrap")
        return self._tried([], "")

    def _tried(self, command: list[str], extra: str) -> tuple[Crew, str]:
        crew = Crew(self.size, lambda: Zygote(self.modules, command, unlocked=False))
        try:
            with crew.lend() as zygote:
                holds = zygote.holds()
            escaped = [name for name, canary in CANARIES.items() if not caught(name, answers(crew, *canary))]
            if escaped:
                raise SandboxError(f"the self-test got through with {', '.join(escaped)}")
        except BaseException:
            crew.close()
            raise
        landlock = f", Landlock {holds['landlock']}" if holds["landlock"] else ""
        count = len(CANARIES)
        line = f"code sandbox: seccomp{landlock}{extra}, user {holds['uid']}; {count}/{count} canaries caught"
        return crew, line

    def close(self) -> None:
        """Ends every process of it; it starts again when it is used again."""
        if self._crew is not None:
            self._crew.close()
        self.reset()

    def forget(self) -> None:
        """In a forked process: the zygotes are the parent's, and this one will start its own."""
        if self._crew is not None:
            self._crew.forget()
        self.reset()


_all: weakref.WeakSet[Local] = weakref.WeakSet()


@atexit.register
def close_all() -> None:
    """Ends the zygotes of this process."""
    for local in list(_all):
        local.close()


def _forked() -> None:
    for local in list(_all):
        local.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def share_of_cores() -> int:
    """Cores this process may count as its own: all, divided by the processes of a launch."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))
