"""Results that change only with the installed packages, in the user's cache: they take the import of TRL or torch."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
from collections.abc import Callable
from typing import Any

from rlm_plugins.durable.files import write_file
from rlm_plugins.durable.lock import cache_folder
from rlm_plugins.errors import RlmError
from rlm_plugins.registry import Registry

FILE = "explain.json"
LIBRARIES = ("peft", "torch", "transformers", "trl")


def stored(name: str, registry: Registry, compute: Callable[[], Any]) -> Any:
    """Return a result as JSON stores it; computed once per version of the installed packages.

    Args:
        name: Its name in the cache.
        registry: Its plugins; with one that is a single file, nothing is stored.
        compute: Returns the result.
    """
    state = registry.index.state()
    if state is None or len(registry.plugins) > 1 + len(registry.index.plugins):
        return json.loads(json.dumps(compute(), default=str))
    key = " ".join([*(f"{library} {importlib.metadata.version(library)}" for library in LIBRARIES), *state])
    entries: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, AttributeError):
        entries = json.loads((cache_folder() / FILE).read_text(encoding="utf-8")).get(key, {})
    if name not in entries:
        entries[name] = json.loads(json.dumps(compute(), default=str))
        with contextlib.suppress(OSError, RlmError):  # without a cache it is computed every time
            cache_folder().mkdir(parents=True, exist_ok=True)
            write_file(cache_folder() / FILE, json.dumps({key: entries}))
    return entries[name]
