"""Parts that need nothing but torch and TRL: one file per hook, of the same name.

Where a hook has more parts than a page holds, its file imports the rest from files named by their subject. (Of rows
there are two: `algorithms`, and in `conventions` the same rows as other libraries compute them.)
"""

from __future__ import annotations

import importlib
from types import ModuleType

FILES = (
    "environments",
    "samplers",
    "rollouts",
    "generators",
    "rewards",
    "shapers",
    "filters",
    "advantages",
    "importance",
    "policy_losses",
    "token_weights",
    "penalties",
    "aggregators",
    "algorithms",
    "conventions",
    "trainers",
    "models",
    "callbacks",
)
"""The files with a hook, in the order a batch meets them."""


def modules() -> list[ModuleType]:
    """The modules themselves; importing them imports neither torch nor TRL."""
    return [importlib.import_module(f"{__name__}.{name}") for name in FILES]
