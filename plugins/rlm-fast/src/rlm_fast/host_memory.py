"""Settings of glibc's allocator for tensors on a CPU."""

from __future__ import annotations

import ctypes
import os
import sys

TRIM, MAP = -1, -3
"""Parameters of `mallopt`: free bytes at the end of the heap that are returned to the system; bytes of a mapping."""
HEAP = {"MALLOC_TRIM_THRESHOLD_": (TRIM, 2**31 - 1), "MALLOC_MMAP_THRESHOLD_": (MAP, 2**25)}
"""Environment variable of a parameter → the parameter, and its largest value."""


def keep_freed_memory() -> bool:
    """Let the process keep freed memory for its next tensors; return False without glibc.

    By default much of it returns to the system, and each page that is used again costs a fault. The maximum is the
    same. A value in the environment takes precedence.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    accepted = [mallopt(*setting) == 1 for name, setting in HEAP.items() if name not in os.environ]
    return all(accepted)
