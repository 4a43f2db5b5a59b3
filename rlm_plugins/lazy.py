"""Lazy imports: ``from rlm_plugins.lazy import torch`` imports torch when it is first used.

Listing parts must not cost the second or more that importing torch takes, so the built-in parts take it from here.
An external plugin may do the same, or simply ``import torch``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["lazy_exports", "torch"]


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


def lazy_exports(package: str, exports: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """Return a `__getattr__` that imports the names of a package from their modules when they are first used.

    Args:
        package: Name of the package, `__name__` of its ``__init__``.
        exports: Module → names it defines. No name may be that of a module.
    """
    modules = {name: module for module, names in exports.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
