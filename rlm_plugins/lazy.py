"""Lets a file say ``import torch`` and pay for it only when it is used.

Listing parts must not cost the seconds that importing torch takes, and a part must read like any other Python
file. While plugins are imported, a heavy module stands in `sys.modules` unexecuted (the standard library's
`LazyLoader`); the first attribute anyone takes from it loads it for real.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lazily(name: str) -> Iterator[None]:
    """Within this block ``import name`` is free. Outside, and once loaded, nothing differs."""
    if name not in sys.modules and (spec := importlib.util.find_spec(name)) and spec.loader:
        loader = importlib.util.LazyLoader(spec.loader)
        spec.loader = loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loader.exec_module(module)
    yield
