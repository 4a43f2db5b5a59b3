"""``from rlm_plugins.lazy import torch``: torch, imported at first use.

Listing parts must not cost the second or more that importing torch takes, so the built-in parts import it from here.
A third-party plugin may do the same, or simply write ``import torch``.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["torch"]


class _Lazy(ModuleType):
    """A placeholder that imports its module at the first attribute access."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import torch
else:
    torch = _Lazy("torch")
