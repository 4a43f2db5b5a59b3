"""One sandbox per process and kind: whoever asks for the same gets the same, and it ends with the process."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from rlm_sandbox.local import Local, share_of_cores

_kinds: dict[tuple[int, tuple[str, ...]], Local] = {}
_asking = threading.Lock()


def shared(size: int | None = None, modules: Sequence[str] = ()) -> Local:
    """The sandbox of this process with these arguments, see `Local`. Not started before it is used."""
    key = (size or share_of_cores(), tuple(modules))
    with _asking:
        if key not in _kinds:
            _kinds[key] = Local(*key)
        return _kinds[key]


def _forked() -> None:
    global _asking
    _asking = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
