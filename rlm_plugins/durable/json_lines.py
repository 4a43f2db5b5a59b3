"""Logs of one JSON object per line: append only, and readable whatever a crash or a full disk left at their end."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rlm_plugins.durable.files import file_errors, write_file


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
        """Append one line; an incomplete last line of an earlier process is removed first.

        Raises:
            RlmError: The file cannot be written; it keeps its complete lines.
        """
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
            data = _read(descriptor)
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


def _read(descriptor: int) -> bytes:
    with open(os.dup(descriptor), "rb") as handle:
        return handle.read()
