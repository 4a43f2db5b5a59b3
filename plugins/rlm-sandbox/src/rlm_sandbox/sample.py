"""One program and its inputs: forks the processes they need, relays messages between them, and returns outputs."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlm_sandbox.inside.wire import EncodingError, Json, Message, decode, encode, pack, unpack, without_names
from rlm_sandbox.interface import Call, Check, Input, Limits, Output, SandboxError, Status, Stdin

PACKAGE = Path(__file__).parent
START_TIMEOUT = 120.0
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
        self._deadline = time.monotonic() + START_TIMEOUT
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
        return self._receive(time.monotonic() + START_TIMEOUT) == b"ended"

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


OVERHEAD = 4096
"""Bytes of a message in addition to its value."""
STARTING = 30.0
"""Seconds that a sample may take to lock itself, on a busy machine."""


class SampleFailure(Exception):
    """An invalid or missing reply of a sample; neither it nor its zygote is used again."""

    def __init__(self, status: Status, why: str) -> None:
        super().__init__(why)
        self.status: Status = status


class Connection:
    """Message exchange with one process in the sandbox.

    Args:
        line: The trainer's end of the socket.
        largest: Size limit of a received value, in bytes.
    """

    def __init__(self, sock: socket.socket, max_output: int) -> None:
        self._socket, self._max_bytes = sock, 2 * max_output + OVERHEAD  # JSON escapes a line break as two characters

    def start(self, job: Mapping[str, Json]) -> None:
        """Send a role; return when the process has locked itself.

        Raises:
            SandboxError: The kernel rejected a lock.
        """
        reply = self.request(job, time.monotonic() + STARTING)
        if "refused" in reply:
            raise SandboxError(f"a lock is missing: {reply['refused']}")
        if "ready" not in reply:
            raise SampleFailure("garbled", "not ready")

    def request(self, message: Mapping[str, Json], deadline: float) -> Message:
        self.send(message, deadline)
        return self.receive(deadline)

    def send(self, message: Mapping[str, Json], deadline: float) -> None:
        try:
            self._socket.settimeout(_remaining(deadline))
            self._socket.sendall(pack(message))
        except TimeoutError:
            raise SampleFailure("late", "its socket is full") from None
        except OSError:
            raise SampleFailure("died", "its process has ended") from None

    def receive(self, deadline: float) -> Message:
        length = int.from_bytes(self._read(4, deadline), "big")
        if length > self._max_bytes:
            raise SampleFailure("garbled", "more output than allowed")
        try:
            return unpack(self._read(length, deadline))
        except EncodingError as error:
            raise SampleFailure("garbled", str(error)) from None

    def _read(self, count: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                self._socket.settimeout(_remaining(deadline))
                chunk = self._socket.recv(min(count - len(data), 1 << 16))
            except TimeoutError:
                raise SampleFailure("late", "no answer in time") from None
            except OSError:
                raise SampleFailure("died", "its process has ended") from None
            if not chunk:
                raise SampleFailure("died", "its process has ended")
            data += chunk
        return bytes(data)

    def close(self) -> None:
        """Close the socket. The process ends when it next reads, or is killed with its zygote."""
        self._socket.close()


def _remaining(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


MAX_ERROR_LENGTH = 400
"""Largest number of characters of a reported error."""


class Sample:
    """A program while its inputs run; `close` ends everything that it started."""

    def __init__(self, zygote: Zygote, source: str, count: int, limits: Limits) -> None:
        self._zygote, self._source, self._limits = zygote, source, limits
        self._cpu = int(limits.seconds * (count + 1)) + 2
        self._candidate: Connection | None = None
        self._examiner: Connection | None = None
        self._examiner_key: tuple[str, tuple[str, ...], tuple[str, ...]] | None = None
        self._load_error: Output | None = None
        self._connections: list[Connection] = []
        self._end: float | None = None
        """Time at which the whole program's limit is over."""

    def run(self, item: Input) -> Output:
        """Return the output of one input.

        Raises:
            SampleFailure: The program must not get further inputs.
        """
        if isinstance(item, Stdin):
            connection = self._start("script", stdin=item.text)
            output = _output(connection.receive(self._deadline()))
            if output.status == "ok" and type(output.value) is not str:  # the program holds the socket
                raise SampleFailure("garbled", "the output of a script is no text")
            self.close()
            return output
        if self._candidate is None:
            self._candidate = self._start("calls")
            self._load_error = _failure(self._candidate.receive(self._deadline()), "loaded")
        if self._load_error is not None:
            return self._load_error
        if isinstance(item, Call):
            args = [encode(each) for each in item.args]
            kwargs = {name: encode(each) for name, each in item.kwargs.items()}
            message = {"plain": item.name, "args": args, "kwargs": kwargs}
            return _output(_require(self._candidate).request(message, self._deadline()))
        return self._check(item)

    def _check(self, item: Check) -> Output:
        if self._examiner_key != (item.setup, item.names, item.classes):
            self._examiner_key = (item.setup, item.names, item.classes)
            names = {"names": list(item.names), "classes": list(item.classes)}
            self._examiner = self._start("examiner", source=item.setup, **names)
            failure = self._relay("loaded")
            if failure is not None:
                self._examiner_key = None
                return failure
        _require(self._examiner).send({"check": item.source}, self._deadline())
        return self._relay("passed") or Output("ok", True)

    def _relay(self, final: str) -> Output | None:
        """Relay requests to the program until the tests send `final` (None), or return their failure."""
        examiner, candidate, deadline = _require(self._examiner), _require(self._candidate), self._deadline()
        while True:
            message = examiner.receive(deadline)
            if "ask" in message:
                examiner.send(_validated(candidate.request(message["ask"], deadline)), deadline)
                continue
            return _failure(message, final)

    def _start(self, role: str, **job: Json) -> Connection:
        limits = {
            "memory": self._limits.memory,
            "output": self._limits.output,
            "cpu": self._cpu,
            "tasks": self._zygote.tasks,
        }
        connection = Connection(self._zygote.fork(), self._limits.output)
        self._connections.append(connection)
        connection.start({"role": role, "source": self._source, "limits": limits, **job})
        return connection

    def _deadline(self) -> float:
        now = time.monotonic()
        if self._end is None:
            self._end = now + (self._limits.total or float("inf"))
        if now >= self._end:
            raise SampleFailure("late", f"all inputs together took more than {self._limits.total:g} s")
        return min(now + self._limits.seconds, self._end)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._zygote.end_samples()
        self._connections, self._candidate, self._examiner, self._examiner_key = [], None, None, None


def _require(connection: Connection | None) -> Connection:
    assert connection is not None
    return connection


def _validated(reply: Message) -> Message:
    """Check a candidate's answer on its way to the examiner: it must have one of four forms."""
    if reply.keys() not in _FORMS:
        raise SampleFailure("garbled", "not an answer")
    return reply


_FORMS = [{kind, "heap", "forget"} for kind in ("value", "error", "end", "callback")]


def _failure(reply: Message, final: str) -> Output | None:
    """Return None for the message `final`, and the output of an error."""
    if reply == {final: True}:
        return None
    if "error" not in reply:
        raise SampleFailure("garbled", f"neither `{final}` nor an error")
    return _output(reply)


def _output(reply: Message) -> Output:
    if "error" in reply:
        return Output("error", error=_error_text(reply["error"]))
    if reply.keys() != {"value"}:
        raise SampleFailure("garbled", "not an answer")
    try:
        value: Any = decode(reply["value"], named=without_names)
    except EncodingError as error:
        raise SampleFailure("garbled", str(error)) from None
    return Output("ok", value)


def _error_text(error: Json) -> str:
    r"""Return an exception's class and text, with control characters escaped.

    >>> _error_text({"names": ["ValueError", "Exception"], "text": "\x1b[2J"})
    'ValueError: \\x1b[2J'
    """
    names, text = (error.get("names"), error.get("text")) if type(error) is dict else (None, None)
    if type(names) is not list or not names or type(names[0]) is not str or type(text) is not str:
        raise SampleFailure("garbled", "not an exception")
    line = ": ".join(filter(None, (names[0], text)))[:MAX_ERROR_LENGTH]
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in line)
