"""Verdicts on disk: a small file per question, written aside and renamed, so that many processes may share them."""

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
    """A folder of answers. What cannot be read is as good as absent; what cannot be written is let go.

    Args:
        folder: Where; made when it is first needed.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder).expanduser()

    def get(self, request: Mapping[str, Any]) -> str | None:
        """The answer to a request, as it was put."""
        try:
            found = json.loads(self._file(request).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        text = found.get("text") if isinstance(found, dict) else None
        return text if isinstance(text, str) else None

    def put(self, request: Mapping[str, Any], text: str) -> None:
        """Keeps an answer. Neither the question nor any key is written, only the question's hash."""
        file = self._file(request)
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            handle, aside = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".part")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as stream:
                    json.dump({"text": text}, stream)
                os.replace(aside, file)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(aside)
                raise

    def _file(self, request: Mapping[str, Any]) -> Path:
        name = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
        return self._folder / name[:2] / f"{name[2:]}.json"
