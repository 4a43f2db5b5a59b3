"""The sandbox of this machine: it starts on first use, attacks itself, and raises if an attack succeeds."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from rlm_sandbox.inside.lock import MACHINES
from rlm_sandbox.interface import Call, Check, Input, Limits, Output, Program, SandboxError
from rlm_sandbox.sample import NOBODY, PACKAGE, Sample, SampleFailure, Zygote, interpreter

_TRY = """
import ctypes, os, socket, threading
def attempt():
    try:
        return bool({})
    except BaseException:
        return False
"""

CANARIES: dict[str, tuple[Program, list[Input]]] = {
    name: (Program(_TRY.format(attack)), [Call("attempt")])
    for name, attack in {
        "reading a file": "open('/etc/passwd').read()",
        "writing a file": "open('/tmp/canary', 'w') or open('/dev/shm/canary', 'w')",
        "a socket": "socket.socket()",
        "a process": "os.fork() >= 0 and 'forked'",
        "another process's memory": "open(f'/proc/{os.getppid()}/mem', 'rb')",
        "a signal to the trainer": "os.kill(os.getppid(), 0) is None",
        "machine code": "__import__('mmap').mmap(-1, 4096, prot=7)",
    }.items()
}
_LIAR = """
class Liar(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
def f(): return Liar(3)
"""
_EQUAL = "an answer equal to everything"
CANARIES[_EQUAL] = (Program(_LIAR), [Check("assert f() == 5", names=("f",))])


def is_blocked(name: str, outputs: Iterator[Output]) -> bool:
    """Return True if a canary ran and had no effect."""
    output = next(outputs)
    if name == _EQUAL:
        return output.status == "error" and output.error.startswith("AssertionError")
    return output.status == "ok" and output.value is False


LIBRARIES = ("/usr/lib", "/usr/lib64", "/lib", "/lib64")
_TREE = "--dir /dev --dev-bind /dev/null /dev/null --remount-ro / --chdir / --"


def bubblewrap_command(modules: tuple[str, ...]) -> list[str]:
    """Return the prefix of a zygote's command; empty without bubblewrap. The first start shows if it works.

    Nothing in the tree is writable, or a sample could leave data for the next. There is no /proc and no /tmp.
    """
    executable = shutil.which("bwrap")
    if executable is None:
        return []
    arguments = [executable, "--unshare-all", "--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox"]
    arguments += ["--cap-drop", "ALL", "--new-session"]
    for path in LIBRARIES:
        if os.path.islink(path):
            arguments += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            arguments += ["--ro-bind", path, path]
    mounts = {sys.base_prefix, str(PACKAGE), interpreter()} - {"/usr"}
    if modules:
        mounts |= {str(Path(path).resolve()) for path in sys.path if path and os.path.isdir(path)}
    for path in sorted(mounts):
        if not any(path.startswith(f"{library}/") for library in LIBRARIES):
            arguments += ["--ro-bind", path, path]
    return [*arguments, *_TREE.split()]


class ZygotePool:
    """One more zygote than samples that may run at once."""

    def __init__(self, size: int, make: Callable[[], Zygote]) -> None:
        self._make, self._slots = make, threading.BoundedSemaphore(size)
        self._idle = deque(make() for _ in range(size + 1))
        self._leased: set[Zygote] = set()
        self._closed = False

    @contextmanager
    def lease(self) -> Iterator[Zygote]:
        """Yield a zygote for one sample. Closing the loop over its outputs early does not count as a fault."""
        with self._slots:
            zygote = self._idle.popleft()
            if not zygote.is_alive():  # killed from outside, for example by the out-of-memory killer
                zygote.close()
                zygote = self._make()
            self._leased.add(zygote)
            healthy = False
            try:
                yield zygote
                healthy = True
            except GeneratorExit:
                healthy = True
                raise
            finally:
                self._give_back(zygote, healthy)

    def _give_back(self, zygote: Zygote, healthy: bool) -> None:
        healthy = zygote.end_samples() and healthy
        self._leased.discard(zygote)
        if self._closed:
            zygote.close()
        elif healthy:
            self._idle.appendleft(zygote)
        else:
            zygote.close()
            self._idle.append(self._make())

    def close(self) -> None:
        """End every zygote; leased ones end when they are returned."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    def detach(self) -> None:
        """Close the parent's zygotes in a forked process."""
        for zygote in (*self._idle, *self._leased):
            zygote.detach()


def run_program(
    pool: ZygotePool, program: Program, inputs: Sequence[Input], limits: Limits | None = None
) -> Iterator[Output]:
    """Yield one output per input, as they arrive; see `rlm_sandbox.interface.Sandbox`."""
    limits, num_done = limits or Limits(), 0
    try:
        with pool.lease() as zygote, closing(Sample(zygote, program.source, len(inputs), limits)) as sample:
            for item in inputs:
                yield sample.run(item)
                num_done += 1
    except SampleFailure as failure:
        yield Output(failure.status, error=str(failure))
        for _ in inputs[num_done + 1 :]:
            yield Output("skipped")


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
        command = bubblewrap_command(self.modules) if self._bubblewrap else []
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
