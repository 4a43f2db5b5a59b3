"""Every file operation of a piece of code as a numbered point at which a child process is killed or meets an error."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

EVENTS = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
Action = Callable[[str], None]


def kill(operation: str) -> None:
    """End this process as a power failure does."""
    os.kill(os.getpid(), signal.SIGKILL)


def fail_with(code: int) -> Action:
    """Raise the error of the operating system; half-written files of torch and safetensors raise their own."""

    def fail(operation: str) -> None:
        if operation.startswith("torch.save"):
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")
        if operation.startswith("safetensors"):
            from safetensors import SafetensorError

            raise SafetensorError(f"Error while serializing: I/O error: {os.strerror(code)} (os error {code})")
        raise OSError(code, os.strerror(code), operation.partition(" ")[2] or None)

    return fail


class Points:
    """Counts the file operations below a folder and acts at one of them.

    Args:
        folder: Operations elsewhere are not counted.
        chosen: Number of the operation at which `action` is called; -1: none.
        action: Kills the process or raises.
    """

    def __init__(self, folder: Path, chosen: int = -1, action: Action = kill) -> None:
        self.folder, self.chosen, self.action = str(folder.resolve()), chosen, action
        self.count, self.busy = 0, False

    def install(self) -> None:
        """Observe this process until it ends: an audit hook cannot be removed."""
        import safetensors.torch
        import torch

        sys.addaudithook(self._audit)
        self._wrap(os, "fsync", lambda descriptor: f"fsync {os.readlink(f'/proc/self/fd/{int(descriptor)}')}")
        self._wrap_writer(torch, "save", lambda value, file, *rest, **options: file)
        self._wrap_writer(safetensors.torch, "serialize_file", lambda tensors, file, *rest, **options: file)

    def point(self, operation: str) -> None:
        """Count an operation."""
        number, self.count = self.count, self.count + 1
        if number == self.chosen:
            self.action(operation)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        if self.busy or not (is_write or event in EVENTS):
            return
        path = arguments[0]
        if isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(self.folder):
            self.point(f"{event} {os.fspath(path)}")

    def _wrap(self, module: Any, name: str, describe: Callable[..., str]) -> None:
        original = getattr(module, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            self.point(describe(*arguments, **options))
            return original(*arguments, **options)

        setattr(module, name, wrapped)

    def _wrap_writer(self, module: Any, name: str, file_of: Callable[..., Any]) -> None:
        """Act also when the file of a writer in C++ or Rust is half written."""
        original = getattr(module, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            result, file = original(*arguments, **options), file_of(*arguments, **options)
            if isinstance(file, str | os.PathLike) and str(Path(file).resolve()).startswith(self.folder):
                data = Path(file).read_bytes()
                self.busy = True
                Path(file).write_bytes(data[: len(data) // 2])
                self.busy = False
                self.point(f"{module.__name__}.{name} {file}")
                self.busy = True
                Path(file).write_bytes(data)
                self.busy = False
            return result

        setattr(module, name, wrapped)


def start_child(task: Callable[[], Any], log: Path) -> int:
    """Start a task in a child process, which inherits what this one has loaded; return its number.

    Args:
        task: Its return value is written as the last line of `log`; an error as traceback.
        log: Standard output and error of the child.
    """
    child = os.fork()
    if child == 0:
        status = 70
        try:
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, 2)
            sys.stdout = sys.stderr = os.fdopen(descriptor, "w", buffering=1)
            print(task())
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 0
        except BaseException:
            traceback.print_exc(file=sys.stdout)
        finally:
            os._exit(status)
    return child


def status_of(child: int) -> int:
    """Wait for a child; return its exit code, or minus the signal that killed it."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_child(task: Callable[[], Any], log: Path) -> int:
    """Run a task in a child process; return its exit code, or minus the signal that killed it."""
    return status_of(start_child(task, log))
