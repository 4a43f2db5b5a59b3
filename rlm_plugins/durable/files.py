"""Files that are complete or absent: atomic writes, logs of JSON lines, and folders with checksums.

::

    checkpoint-40/
      adapter_model.safetensors
      optimizer.pt
      checksums.json             {"files": {"optimizer.pt": {"size": 30114, "sha256": "…"}, …}}
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import json
import math
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from rlm_plugins.errors import RlmError
from rlm_plugins.lazy import psutil

_HINTS = {
    errno.ENOSPC: "free space on this disk; what was saved before is intact",
    errno.EDQUOT: "free space in your quota; what was saved before is intact",
    errno.EROFS: "choose a folder on a writable disk with --out",
    errno.EACCES: "choose a folder that you may write to with --out",
    errno.EPERM: "choose a folder that you may write to with --out",
    errno.ENAMETOOLONG: "choose a shorter name with --name or --out",
    errno.ELOOP: "remove this link: a run writes into its own folder only",
    errno.ENOTDIR: "a file is in the place of a folder: choose another --out",
    errno.EBUSY: "choose a new folder: this one is a mounted disk, or in use",
    errno.EEXIST: "a file is in the place of a folder: choose another --out",
}


def file_error(error: OSError, path: Path | str = "", task: str = "written") -> RlmError:
    """Return an OSError as an error with file, reason and remedy; `task` is the past participle of what was tried."""
    reason = error.strerror or str(error)
    where = path if error.filename is None else os.fsdecode(error.filename)
    return RlmError(f"cannot be {task}: {reason}", where=str(where), hint=_HINTS.get(error.errno or 0, ""))


@contextlib.contextmanager
def file_errors(path: Path, task: str = "written") -> Iterator[None]:
    """Raise errors of the operating system in this context as an `RlmError` that names the file."""
    try:
        yield
    except OSError as error:
        raise file_error(error, path, task) from None
    except MemoryError:
        raise RlmError(f"cannot be {task}: it does not fit into memory", where=str(path)) from None


def write_file(path: Path, content: str | bytes) -> None:
    """Replace a file by one with this content; a reader sees the old or the new content, never a part."""
    with file_errors(path):
        staged = _beside(path)
        try:
            with staged.open("xb") as handle:  # never through a link
                handle.write(content.encode() if isinstance(content, str) else content)
                handle.flush()
                os.fsync(handle.fileno())
            staged.replace(path)
            sync_directory(path.parent)
        except OSError:
            with contextlib.suppress(OSError):
                staged.unlink()
            raise


@contextlib.contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Yield a path beside `target` for a file or folder, which is renamed when the block ends; else it is removed.

    So the output of a command is complete or absent, even if the process is killed or the disk is full.

    Args:
        target: A file or device, or a folder that does not exist or is empty. Folders above it are created.

    Raises:
        RlmError: It cannot be written.
    """
    if target.exists() and not (target.is_file() or target.is_dir()):
        yield target  # a device or a pipe
        return
    target = target.resolve()
    with file_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = _beside(target)
        try:
            yield partial
            for name in [partial] if partial.is_file() else map(partial.joinpath, _files(partial)):
                _entry(name, sync=True)
            if target.is_dir():
                target.rmdir()
            partial.replace(target)
            sync_directory(target.parent)
        except BaseException:
            _discard(partial)
            raise


def _beside(target: Path) -> Path:
    """Return a path of the same suffix that no other process writes; leftovers of killed processes are removed."""
    for path in target.parent.glob(f".new.*.{glob.escape(target.name)}"):
        number = path.name.removesuffix(f".{target.name}").removeprefix(".new.")
        if number.isdecimal() and (int(number) == os.getpid() or not psutil.pid_exists(int(number))):
            _discard(path)
    return target.with_name(f".new.{os.getpid()}.{target.name}")


def _discard(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Create a folder and those above it."""
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


class JsonLines:
    """A log of one JSON object per line.

    Args:
        path: The file; it need not exist.
        warn: Called with one line about each damaged line.
    """

    def __init__(self, path: Path, warn: Callable[[str], None] = print) -> None:
        self.path, self._warn, self._healed = path, warn, False
        self._reported: set[int] = set()

    def append(self, record: Mapping[str, Any]) -> None:
        """Append one line; an incomplete last line of an earlier process is removed first."""
        self.heal()
        line = (json.dumps(plain(record), ensure_ascii=False) + "\n").encode("utf-8", errors="replace")
        with file_errors(self.path), self._opened(os.O_WRONLY | os.O_APPEND | os.O_CREAT) as descriptor:
            size = os.fstat(descriptor).st_size
            try:
                num_written = os.write(descriptor, line)
                while num_written < len(line):
                    num_written += os.write(descriptor, line[num_written:])
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise

    def heal(self) -> None:
        """Remove an incomplete last line, once per process."""
        if self._healed or not self.path.exists():
            return
        with file_errors(self.path), self._opened(os.O_RDWR) as descriptor:
            with open(os.dup(descriptor), "rb") as handle:
                data = handle.read()
            complete = data.rfind(b"\n") + 1
            if complete < len(data) and json_object(data[complete:]) is not None:
                os.lseek(descriptor, 0, os.SEEK_END)
                os.write(descriptor, b"\n")  # complete except for its end
            elif complete < len(data):
                os.ftruncate(descriptor, complete)
                self._warn(f"{self.path}: the incomplete last line was removed ({len(data) - complete} bytes)")
        self._healed = True

    def records(self) -> list[dict[str, Any]]:
        """Return the objects, oldest first; a line that is none is reported with its number and left out."""
        return [record for _, record in self._lines() if record is not None]

    def keep(self, is_kept: Callable[[dict[str, Any]], bool]) -> None:
        """Remove the objects for which `is_kept` is False; lines that are no objects are kept."""
        self.heal()
        lines = list(self._lines())
        remaining = [line for line, record in lines if record is None or is_kept(record)]
        if len(remaining) < len(lines):
            write_file(self.path, b"".join(line + b"\n" for line in remaining))

    def sync(self) -> None:
        """Write the file to disk."""
        if self.path.exists():
            with file_errors(self.path), self._opened(os.O_RDONLY) as descriptor:
                os.fsync(descriptor)

    def _lines(self) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
        if not self.path.exists():
            return
        with file_errors(self.path, "read"):
            data = self.path.read_bytes()
        lines = data.split(b"\n")
        incomplete = lines.pop()
        if incomplete and json_object(incomplete) is not None:
            lines.append(incomplete)
        for number, line in enumerate(lines, 1):
            record = json_object(line)
            if record is None and number not in self._reported:
                self._reported.add(number)
                self._warn(f"{self.path} line {number}: expected a JSON object, the line is skipped")
            yield line, record

    @contextlib.contextmanager
    def _opened(self, flags: int) -> Iterator[int]:
        descriptor = os.open(self.path, flags | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def plain(value: Any) -> Any:
    """Return a value with null for NaN and infinity, which JSON lacks."""
    if isinstance(value, Mapping):
        return {name: plain(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [plain(x) for x in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_object(line: bytes) -> dict[str, Any] | None:
    """Return the object of a line; None if the line is damaged, or no object."""
    try:
        value = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


CHECKSUMS = "checksums.json"
_LOADED = (".bin", ".json", ".pkl", ".pt", ".pth", ".py", ".safetensors")
"""Suffixes of files that a library would load; another file that was added later, such as a note, does no harm."""
_THREADS = 8


def seal(folder: Path, *, owner: str = "", sync: bool = True) -> None:
    """Write the checksums of every file of a folder, and everything to disk.

    Args:
        folder: The folder.
        owner: Name of run and stage, as :func:`owner_of` returns it.
        sync: False: a power failure may damage the folder, which its checksums show.

    Raises:
        OSError: A file cannot be read or synchronized.
    """
    files = _files(folder)
    if sync:
        with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:  # hashing releases the interpreter's lock
            entries = list(pool.map(lambda name: _entry(folder / name, sync=True), files))
    else:
        entries = [_entry(folder / name) for name in files]
    contents = {**({"owner": owner} if owner else {}), "files": dict(zip(files, entries, strict=True))}
    document = json.dumps(contents, indent=2) + "\n"
    if not sync:
        (folder / CHECKSUMS).write_text(document, encoding="utf-8")
        return
    for directory in sorted({(folder / name).parent for name in files} - {folder}, reverse=True):
        sync_directory(directory)
    write_file(folder / CHECKSUMS, document)


def publish_sealed(staged: Path, target: Path, *, sync: bool = True) -> None:
    """Seal a complete folder and rename it to its final name."""
    seal(staged, sync=sync)
    publish(staged, target, sync=sync)


def is_sealed(folder: Path) -> bool:
    """Return True if the folder has checksums."""
    return os.path.lexists(folder / CHECKSUMS)


def seal_digest(folder: Path) -> str:
    """Return a digest of all files of a sealed folder; empty if it has no checksums."""
    return hashlib.sha256((folder / CHECKSUMS).read_bytes()).hexdigest() if is_sealed(folder) else ""


def owner_of(folder: Path) -> str:
    """Return the name of run and stage of a sealed folder without damage; empty if it was not recorded."""
    return str(json.loads((folder / CHECKSUMS).read_bytes()).get("owner", ""))


def damages(folder: Path) -> list[str]:
    """Return the differences of the files of a sealed folder from their checksums; empty if it is undamaged."""
    try:
        expected = _expected(folder)
    except (OSError, ValueError, LookupError, TypeError):
        return [f"{CHECKSUMS} cannot be read"]
    files = _files(folder)
    reasons = [f"{name} is not a regular file" for name in files if not stat.S_ISREG((folder / name).lstat().st_mode)]
    reasons += [f"{name} is missing" for name in expected if name not in files]
    reasons += [f"{name} was added" for name in files if name not in expected and name.endswith(_LOADED)]
    if reasons:
        return reasons
    with ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool:
        return [reason for reason in pool.map(lambda name: _reason(folder, name, expected[name]), expected) if reason]


def _expected(folder: Path) -> dict[str, tuple[int, str]]:
    if not (folder / CHECKSUMS).is_file() or (folder / CHECKSUMS).is_symlink():
        raise ValueError("not a regular file")
    files: dict[str, Any] = json.loads((folder / CHECKSUMS).read_bytes())["files"]
    entries = {name: (int(entry["size"]), str(entry["sha256"])) for name, entry in files.items()}
    if any(PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts for name in entries):
        raise ValueError("a path leads out of the folder")
    return entries


def _reason(folder: Path, name: str, expected: tuple[int, str]) -> str:
    try:
        size = (folder / name).stat().st_size
        if size != expected[0]:
            return f"{name} has {size} bytes instead of {expected[0]}"
        is_same = _entry(folder / name)["sha256"] == expected[1]
    except OSError as error:
        return f"{name} cannot be read ({error.strerror})"
    return "" if is_same else f"{name} differs from its checksum"


def _files(folder: Path) -> list[str]:
    """Return the relative path of every file; a link to a folder is listed and not followed."""
    paths = []
    for parent, folders, names in os.walk(folder):
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        paths += [(Path(parent) / name).relative_to(folder).as_posix() for name in (*names, *links)]
    return sorted(name for name in paths if name != CHECKSUMS and not PurePosixPath(name).name.startswith("."))


def _entry(file: Path, *, sync: bool = False) -> dict[str, Any]:
    with file.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
        if sync:
            os.fsync(handle.fileno())
        return {"size": os.fstat(handle.fileno()).st_size, "sha256": digest}
