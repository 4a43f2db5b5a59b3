"""Verdicts on disk: one small file per request, written by atomic rename, so that many processes can share them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Cache:
    """A folder of answers. Unreadable files count as absent, and failures to write are ignored.

    Args:
        folder: Its path; created on first use.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).expanduser()

    def get(self, request: Mapping[str, Any]) -> str | None:
        """Return the cached answer to a request; None if there is none."""
        try:
            entry = json.loads(self._file(request).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        text = entry.get("text") if isinstance(entry, dict) else None
        return text if isinstance(text, str) else None

    def put(self, request: Mapping[str, Any], text: str) -> None:
        """Store an answer. Neither the request nor any key is written, only the request's hash."""
        file = self._file(request)
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".part")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as stream:
                    json.dump({"text": text}, stream)
                os.replace(temporary, file)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise

    def _file(self, request: Mapping[str, Any]) -> Path:
        name = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
        return self._folder / name[:2] / f"{name[2:]}.json"
