"""Registry of the parts of all plugins."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlm_plugins.registry.registry import BUILTIN, Registry

__all__ = ["BUILTIN", "Registry"]


def __getattr__(name: str) -> Any:
    """Import the registry at first use: `rlm --help` needs its index of names only."""
    if name in __all__:
        return getattr(importlib.import_module("rlm_plugins.registry.registry"), name)
    raise AttributeError(f"module 'rlm_plugins.registry' has no attribute '{name}'")
