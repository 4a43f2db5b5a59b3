"""Atomic and durable writes: a file or folder is complete under its name, or absent, also after a power failure."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from rlm_plugins.errors import RlmError

_HINTS = {
    errno.ENOSPC: "free space on this disk; what was saved before is intact",
    errno.EDQUOT: "free space in your quota; what was saved before is intact",
    errno.EROFS: "choose a folder on a writable disk with --out",
    errno.EACCES: "choose a folder that you may write to with --out",
    errno.EPERM: "choose a folder that you may write to with --out",
    errno.ENAMETOOLONG: "choose a shorter name with --name or --out",
    errno.ELOOP: "remove this link: a run writes into its own folder only",
    errno.ENOTDIR: "a file is in the place of a folder: choose another --out",
    errno.EEXIST: "a file is in the place of a folder: choose another --out",
}


def file_error(error: OSError, path: Path | str = "", task: str = "written") -> RlmError:
    """Return an error of the operating system as one that names the file, its reason and a remedy.

    Args:
        error: The original error.
        path: The file, if the error does not name it.
        task: Past participle of what was tried.
    """
    reason = error.strerror or str(error)
    where = path if error.filename is None else os.fsdecode(error.filename)
    return RlmError(f"cannot be {task}: {reason}", where=str(where), hint=_HINTS.get(error.errno or 0, ""))


@contextlib.contextmanager
def file_errors(path: Path, task: str = "written") -> Iterator[None]:
    """Raise errors of the operating system in this context as an `RlmError` that names the file.

    Raises:
        RlmError: The file cannot be read or written.
    """
    try:
        yield
    except OSError as error:
        raise file_error(error, path, task) from None
    except MemoryError:
        raise RlmError(f"cannot be {task}: it does not fit into memory", where=str(path)) from None


def write_file(path: Path, content: str | bytes) -> None:
    """Replace a file by one with this content; a reader sees the old or the new content, never a part.

    Raises:
        RlmError: The file cannot be written; the old one is unchanged.
    """
    staged = path.with_name(f".{path.name}.new")
    with file_errors(path):
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
            with open(os.open(staged, flags, 0o666), "wb") as handle:
                handle.write(content.encode() if isinstance(content, str) else content)
                handle.flush()
                os.fsync(handle.fileno())
            staged.replace(path)
            sync_directory(path.parent)
        except OSError:
            with contextlib.suppress(OSError):
                staged.unlink()
            raise


def make_folder(folder: Path) -> None:
    """Create a folder and those above it.

    Raises:
        RlmError: A file is in its place, or its place is not writable.
    """
    with file_errors(folder, "created"):
        folder.mkdir(parents=True, exist_ok=True)


def sync_directory(folder: Path) -> None:
    """Write the entries of a folder to disk: without this a new or renamed file may be lost in a power failure."""
    if os.name == "nt":  # a folder cannot be opened there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # network file systems that sync entries themselves
            raise
    finally:
        os.close(descriptor)


def publish(staged: Path, target: Path, *, sync: bool = True) -> None:
    """Rename a complete folder to its final name; an earlier folder of that name is replaced."""
    remove(target)
    staged.rename(target)
    if sync:
        sync_directory(target.parent)


def remove(folder: Path) -> None:
    """Remove a folder, which disappears at once under its name: a killed process leaves no part of it there."""
    doomed = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(doomed, ignore_errors=True)
    if folder.is_symlink():
        folder.unlink()
    elif folder.exists():
        folder.rename(doomed)
        shutil.rmtree(doomed)
