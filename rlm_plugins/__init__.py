"""rlm-plugins: every symbol of the reinforcement-learning equation for reasoning models is a plugin.

Importing this package costs a few milliseconds: no torch, no TRL. A plugin needs one name from it::

    from rlm_plugins import hookimpl

The other names are loaded at first use: trainers with TRL's constructors, and functions for scripts and notebooks.
"""

# first, because it decides where the other imports come from
from rlm_plugins import working_directory as working_directory  # isort: skip

from typing import Any

from pluggy import HookimplMarker

__version__ = "0.1.0"

hookimpl = HookimplMarker("rlm")
"""Decorator of a plugin's function that implements a hook of :mod:`rlm_plugins.hookspecs`."""

_LAZY = {
    "GRPOTrainer": "api.trl_trainers",
    "RLOOTrainer": "api.trl_trainers",
    "PPOTrainer": "api.trl_trainers",
    "SFTTrainer": "api.offline_trainers",
    "RewardTrainer": "api.offline_trainers",
    "GRPOConfig": "trainer.config",
    "Equation": "equation",
    "Run": "api.results",
    "load": "api.recipe_arguments",
    **dict.fromkeys(("check", "train", "evaluate", "algorithms", "explain", "part"), "api.functions"),
}
"""Public name → module that defines it."""
__all__ = ["__version__", "hookimpl", *_LAZY]


def __getattr__(name: str) -> Any:
    """Import a public name at first use."""
    import importlib

    if name not in _LAZY:
        raise AttributeError(f"module 'rlm_plugins' has no attribute '{name}'")
    value = globals()[name] = getattr(importlib.import_module(f"rlm_plugins.{_LAZY[name]}"), name)
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
