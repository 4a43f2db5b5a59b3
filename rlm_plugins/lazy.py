"""Lazy imports: ``from rlm_plugins.lazy import torch`` imports torch when it is first used.

Listing parts must not cost the second or more that importing torch takes, so the built-in parts take it from here.
An external plugin may do the same, or simply ``import torch``.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["torch"]


class _Lazy(ModuleType):
    """Placeholder of a module, which is imported at the first access to an attribute."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import torch
else:
    torch = _Lazy("torch")
