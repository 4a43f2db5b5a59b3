"""One sandbox per process and configuration, shared by all callers; it ends with the process."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from rlm_sandbox.local import Local, share_of_cores

_instances: dict[tuple[int, tuple[str, ...]], Local] = {}
_lock = threading.Lock()


def shared(size: int | None = None, modules: Sequence[str] = ()) -> Local:
    """Return the sandbox of this process with these arguments, see `Local`. It starts on first use."""
    key = (size or share_of_cores(), tuple(modules))
    with _lock:
        if key not in _instances:
            _instances[key] = Local(*key)
        return _instances[key]


def _forked() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
