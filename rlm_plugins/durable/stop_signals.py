"""Signals that end a run: the first one requests a checkpoint, the second one ends the process at once.

Ctrl-C, a closed terminal, `kill`, schedulers (Slurm, Kubernetes) and spot machines all send one of `SIGNALS`.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGPWR")
PATIENCE = 10.0
"""Seconds after which a step that has not ended is aborted; it is repeated when the run is resumed."""
SAME_NOTICE = 0.25
"""Seconds in which another signal is part of the same notice: systemd sends SIGHUP right after SIGTERM."""
SAME_NOTICE_OF_LAUNCHER = 5.0
"""The same with several processes, where the launcher passes on what the processes have already received."""


class Interrupted(KeyboardInterrupt):
    """A signal ended the run at a safe point."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """128 + the signal, as in a shell."""
        return 128 + self.number


class StopSignals:
    """Handlers of the signals that end a run; a context manager. It does nothing outside of the main thread.

    An error that leaves the context after a signal was raised in it is raised as `Interrupted`.

    Attributes:
        number: The signal received; 0: none.
        waits: True while a step is trained, so that a signal waits for its end; otherwise it raises at once.
        may_abort: True while the step may be given up after `PATIENCE`: no weight has changed yet.
        command: Resumes what was stopped; by default `folder`.
        folder: That of the run; None before it has one.
    """

    def __init__(self) -> None:
        self.number, self.waits, self.may_abort = 0, False, False
        self.folder: Path | None = None
        self.command = ""
        self._since, self._is_late, self._is_raised, self._depth = 0.0, False, False, 0
        self._timer: threading.Timer | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        self._depth += 1
        if self._depth > 1:
            return self
        self.number, self.waits, self.may_abort, self.folder, self.command = 0, False, False, None, ""
        self._is_raised = False
        if threading.current_thread() is threading.main_thread():
            for name in SIGNALS:
                number = getattr(signal, name, None)
                # an ignored signal stays ignored (nohup), and so does one with a handler of another library
                if number is not None and signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                    self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._remove_handlers()
        if self._is_raised and isinstance(error, Exception):
            # compiled code wraps an exception raised in it: pydantic raises `Interrupted` as a `SchemaError`
            raise Interrupted(self.number) from error

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer signals in this context, in which files are saved."""
        previous = self.waits, self.may_abort
        self.waits, self.may_abort = True, False
        try:
            yield
        finally:
            self.waits, self.may_abort = previous

    def raise_if_received(self) -> None:
        """Raise the exception of the signal received."""
        if self.number:
            raise Interrupted(self.number)

    @property
    def advice(self) -> str:
        """Text on how to resume the run; empty before its folder is a run."""
        if self.command:
            return f"resume with: {self.command}"
        if self.folder is None or not (self.folder / "recipe.yaml").exists():
            return ""
        if (self.folder / "summary.json").exists():
            return f"the run is finished: {self.folder}"
        return f"resume with: rlm train {shlex.quote(str(self.folder))} --resume"

    def _remove_handlers(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._is_late:  # sent by the timer
            self._is_late = False
            if self.may_abort or not self.waits:
                self._raise()
            return
        elapsed = time.monotonic() - self._since
        is_launched = os.environ.get("WORLD_SIZE", "1") != "1"
        window = SAME_NOTICE_OF_LAUNCHER if is_launched else SAME_NOTICE
        if self.number and elapsed < window and (is_launched or number != self.number):
            return
        if self.number:
            _print_line(f"{signal.Signals(number).name}: stopped at once")
            os._exit(128 + number)
        self.number, self._since = number, time.monotonic()
        if not self.waits:
            self._raise()
        _print_line(
            f"{signal.Signals(number).name}: saving a checkpoint after this step; the same signal again stops at once"
        )
        self._timer = threading.Timer(PATIENCE, self._send_late)
        self._timer.daemon = True
        self._timer.start()

    def _raise(self) -> NoReturn:
        self._is_raised = True
        raise Interrupted(self.number)

    def _send_late(self) -> None:
        self._is_late = True
        main = threading.main_thread().ident
        if main is not None:
            signal.pthread_kill(main, self.number)  # a real signal: it also ends a call that waits


_CURRENT = StopSignals()


def current() -> StopSignals:
    """Return the handlers of this process; they are installed by ``with current():``."""
    return _CURRENT


def _print_line(text: str) -> None:
    """Write one line to stderr, as far as that is possible; a signal handler cannot call `print`."""
    with contextlib.suppress(OSError, ValueError):
        cursor = "\x1b[?25h" if sys.stderr is not None and sys.stderr.isatty() else ""  # a progress bar hides it
        if select.select([], [2], [], 0)[1]:  # a terminal after Ctrl-S would block
            os.write(2, f"{cursor}\n{text}\n".encode())
