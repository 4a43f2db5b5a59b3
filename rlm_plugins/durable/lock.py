"""The lock of a run folder, which has one writer, and the place of the cache."""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlm_plugins.durable.files import file_errors
from rlm_plugins.errors import RlmError
from rlm_plugins.lazy import psutil

LOCK = "lock"
_HELD: dict[str, int] = {}
"""Folder → open file, of the locks of this process."""


@contextlib.contextmanager
def locked(folder: Path, log_line: Callable[[str], None] = print) -> Iterator[None]:
    """Hold the lock of a folder, which ends with the process; the error has host and number of another holder."""
    key = str(folder.resolve())
    if key in _HELD:
        yield
        return
    _HELD[key] = _acquire(folder / LOCK, log_line)
    try:
        try:
            yield
        finally:
            _release(key)
    finally:
        _release(key)  # again, because a signal may have interrupted the first call


def check_place(folder: Path) -> None:
    """Check that a run folder that this process has locked, and its recipe, were not renamed or removed."""
    if str(folder.resolve()) in _HELD and not (folder / "recipe.yaml").exists():
        hint = "if it was renamed, resume it at its new place: `rlm train FOLDER --resume`"
        raise RlmError("the run was renamed or removed while it was written", where=str(folder), hint=hint)


def _release(key: str) -> None:
    """Remove and release the lock of a folder, unless that is done or the lock is that of a parent process."""
    if (descriptor := _HELD.get(key)) is None:
        return
    file = Path(key) / LOCK
    with contextlib.suppress(OSError):
        if _is_same(file, descriptor):
            file.unlink()  # before it is released: another process must not lock a removed file
    del _HELD[key]
    os.close(descriptor)


def _acquire(file: Path, log_line: Callable[[str], None]) -> int:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    while True:
        with file_errors(file):
            descriptor = os.open(file, flags, 0o644)
            holder, is_locked = _holder(descriptor), _try_lock(descriptor)
        if not _is_same(file, descriptor):
            os.close(descriptor)  # removed or replaced meanwhile
        elif is_locked or (is_locked is None and (not holder or _is_gone(holder))):
            if holder:
                log_line(f"{file.parent}: taken over from {_name(holder)}, which did not end cleanly")
            with file_errors(file):
                _write_holder(descriptor)
            return descriptor
        else:
            os.close(descriptor)
            hint = "wait for it, or stop it: the run can then be resumed"
            started = "a process that was started by " if is_locked is False and _is_gone(holder) else ""
            problem = f"{started}{_name(holder)} writes into this folder"
            raise RlmError(problem, where=str(file.parent), hint=hint)


def _try_lock(descriptor: int) -> bool | None:
    """Lock an open file; return False if another process has it, None if the file system has no locks."""
    try:
        import fcntl
    except ImportError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_same(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write_holder(descriptor: int) -> None:
    pid = os.getpid()
    holder = {"host": platform.node(), "pid": pid, "started": _start_time(pid)}
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, (json.dumps(holder) + "\n").encode(), 0)
    os.fsync(descriptor)


def _holder(descriptor: int) -> dict[str, Any]:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return {"host": str(holder["host"]), "pid": int(holder["pid"]), "started": holder.get("started")}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _is_gone(holder: dict[str, Any]) -> bool:
    """Return True if the process was on this host and has ended; its number may be that of another process now."""
    if not holder or holder["host"] != platform.node():
        return False
    started = _start_time(holder["pid"])
    return started is None or (holder["started"] is not None and started != holder["started"])


def _start_time(pid: int) -> str | None:
    """Return when a process was started, in terms that no change of the clock moves; None if there is no process."""
    boot = ""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        with contextlib.suppress(OSError):
            boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        return f"{boot} {stat.rpartition(')')[2].split()[19]}"  # ticks since the boot
    try:
        return str(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def _name(holder: dict[str, Any]) -> str:
    return f"process {holder['pid']} on host {holder['host']}" if holder else "another process"


def _close_in_child() -> None:
    """Close the locks in a forked process: they are those of its parent."""
    for descriptor in _HELD.values():
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def cache_folder() -> Path:
    """Return the cache of this user: ``RLM_CACHE``, or ``rlm-plugins`` in ``XDG_CACHE_HOME`` or ``~/.cache``."""
    if folder := os.environ.get("RLM_CACHE"):
        return Path(folder).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "rlm-plugins"
