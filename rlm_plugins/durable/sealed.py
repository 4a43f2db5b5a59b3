"""Folders with checksums: size and SHA-256 of every file, written last, so that damage is found and named.

::

    checkpoint-40/
      adapter_model.safetensors
      optimizer.pt
      checksums.json             {"files": {"optimizer.pt": {"size": 30114, "sha256": "…"}, …}}
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from rlm_plugins.durable.files import publish, sync_directory, write_file

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
    reasons = [f"{name} is not a regular file" for name in files if not _is_regular(folder / name)]
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


def _is_regular(path: Path) -> bool:
    return stat.S_ISREG(path.lstat().st_mode)


def _entry(file: Path, *, sync: bool = False) -> dict[str, Any]:
    with file.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
        if sync:
            os.fsync(handle.fileno())
        return {"size": os.fstat(handle.fileno()).st_size, "sha256": digest}
