"""Every file operation of a run as a numbered point: its folder is copied there, or a child process meets an error."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

EVENTS = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.truncate", "os.link"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
Action = Callable[[int, str], None]


def error_of(code: int, operation: str) -> Exception:
    """Return the error of the operating system; writers in C++ and Rust raise their own."""
    if operation.startswith("torch.save"):
        return RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")
    if operation.startswith("safetensors"):
        from safetensors import SafetensorError

        return SafetensorError(f"Error while serializing: I/O error: {os.strerror(code)} (os error {code})")
    return OSError(code, os.strerror(code), operation.partition(" ")[2] or None)


class Inline:
    """Substitute for a thread pool that runs each task at once: a forked child has no other threads."""

    def __init__(self, *_: Any) -> None:
        self.map = map

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Points:
    """Hooks that call an action before each file operation below a folder, and inside a write of torch or safetensors.

    Args:
        folder: Operations elsewhere are not counted.
        action: Called with the number and the name of the operation; what it does itself is not counted.
    """

    def __init__(self, folder: Path, action: Action) -> None:
        self.folder, self.action = str(folder.resolve()), action
        self.count, self.busy = 0, False

    def install(self) -> None:
        """Observe this process until it ends: an audit hook cannot be removed."""
        import safetensors.torch
        import torch

        from rlm_plugins.durable import files

        sys.addaudithook(self._audit)
        files.ThreadPoolExecutor = Inline  # type: ignore[assignment, misc]
        self._wrap(os, "fsync", lambda descriptor: os.readlink(f"/proc/self/fd/{int(descriptor)}"))
        self._wrap(os, "write", lambda descriptor, data: os.readlink(f"/proc/self/fd/{descriptor}"))
        self._wrap_writer(torch, "save", lambda value, file, *rest, **options: file)
        self._wrap_writer(safetensors.torch, "serialize_file", lambda tensors, file, *rest, **options: file)

    def point(self, operation: str) -> None:
        """Count an operation and call the action."""
        if self.busy:
            return
        number, self.count, self.busy = self.count, self.count + 1, True
        try:
            self.action(number, operation)
        finally:
            self.busy = False

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        path = arguments[0] if is_write or event in EVENTS else None
        if isinstance(path, str | os.PathLike) and os.path.abspath(path).startswith(self.folder):
            self.point(f"{event} {os.fspath(path)}")

    def _wrap(self, module: Any, name: str, path_of: Callable[..., str]) -> None:
        original = getattr(module, name)

        def wrapped(*arguments: Any) -> Any:
            if (path := path_of(*arguments)).startswith(self.folder):
                self.point(f"{name} {path}")
            return original(*arguments)

        setattr(module, name, wrapped)

    def _wrap_writer(self, module: Any, name: str, file_of: Callable[..., Any]) -> None:
        original = getattr(module, name)

        def wrapped(*arguments: Any, **options: Any) -> Any:
            result, file = original(*arguments, **options), file_of(*arguments, **options)
            if isinstance(file, str | os.PathLike) and str(Path(file).resolve()).startswith(self.folder):
                data = Path(file).read_bytes()
                with self._rewritten(Path(file), data[: len(data) // 2], data):
                    self.point(f"{module.__name__}.{name} {file}")
            return result

        setattr(module, name, wrapped)

    @contextmanager
    def _rewritten(self, file: Path, half: bytes, whole: bytes) -> Iterator[None]:
        self._write(file, half)
        yield
        self._write(file, whole)

    def _write(self, file: Path, data: bytes) -> None:
        self.busy, before = True, self.busy
        file.write_bytes(data)
        self.busy = before


def state_of(folder: Path) -> str:
    """Return a digest of all names and contents below a folder, except the lock file, which holds a process id."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() and path.name != "lock" else b""
        digest.update(f"{path.relative_to(folder)} {len(content)} ".encode() + content)
    return digest.hexdigest()


class States:
    """Copies of the distinct states of a folder; one that another process writes into is copied between its writes.

    Args:
        folder: The folder.
        into: Folder of the copies, ``NUMBER`` each.
    """

    def __init__(self, folder: Path, into: Path) -> None:
        self._folder, self._into, self._seen = folder, into, set[str]()

    def add(self, number: int, operation: str = "") -> None:
        """Copy the folder, unless it had the same contents before."""
        is_shared = os.environ.get("WORLD_SIZE", "1") != "1"
        copy = self._into / str(number)
        while True:
            try:
                state = state_of(self._folder)
                if state in self._seen:
                    return
                copy.mkdir(parents=True)
                if self._folder.exists():
                    shutil.copytree(self._folder, copy / "run", symlinks=True)
                if not is_shared or state_of(copy / "run") == state_of(self._folder) == state:
                    break
            except OSError:  # a file was renamed meanwhile; `shutil.Error` is one of them
                if not is_shared:
                    raise
            shutil.rmtree(copy, ignore_errors=True)
        self._seen.add(state)
        (copy / "operation").write_text(operation)


def copied(into: Path) -> Iterable[tuple[int, str, Path]]:
    """Yield number, operation and folder of each copy, in order."""
    for path in sorted(into.iterdir(), key=lambda path: int(path.name)):
        yield int(path.name), (path / "operation").read_text(), path / "run"


def at_every_point(task: Callable[[], Any], folder: Path, action: Action, log: Path) -> int:
    """Run a task in a child process with an action at each file operation; return how many there were."""

    def observed() -> int:
        points = Points(folder, action)
        points.install()
        task()
        return points.count

    assert in_child(observed, log) == 0, log.read_text()
    return int(log.read_text().split()[-1])


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
