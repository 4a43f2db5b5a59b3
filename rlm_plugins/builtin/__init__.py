"""Built-in parts, which require torch and TRL only: one file per hook, of the same name.

The file of a hook with many parts imports some of them from files named by their subject. `rollouts` has the hooks of
samplers and generators as well, `shapers` that of filters.
"""

from __future__ import annotations

import importlib
from types import ModuleType

FILES = (
    "environments",
    "rollouts",
    "rewards",
    "shapers",
    "advantages",
    "importance",
    "policy_losses",
    "token_weights",
    "penalties",
    "aggregators",
    "algorithms",
    "trainers",
    "models",
    "callbacks",
    "settings",
)
"""The files with a hook, in batch order."""


def modules() -> list[ModuleType]:
    """Import and return the modules, without importing torch or TRL."""
    return [importlib.import_module(f"{__name__}.{name}") for name in FILES]
