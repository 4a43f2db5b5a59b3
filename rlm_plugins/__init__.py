"""rlm-plugins: every symbol of the reinforcement-learning equation for reasoning models is a plugin.

Importing this package costs a few milliseconds: no torch, no TRL. A plugin needs one name from it::

    from rlm_plugins import hookimpl

The other names are loaded at first use: trainers with TRL's constructors, and functions for scripts and notebooks.
"""

import os
import sys


def _remove_working_directory() -> None:
    """Remove the first entry of ``sys.path`` if it is the working directory, unless this package is there.

    ``python -m rlm_plugins`` puts it first, and the folder of a foreign recipe may hold modules and entry points.
    ``os`` and ``sys`` are loaded before any program starts.
    """
    try:
        working_directory = os.getcwd()
    except FileNotFoundError:  # it was removed: the command line reports that
        return
    package_parent = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(working_directory) != package_parent:
        del sys.path[0]


if sys.argv[:1] == ["-m"] and "rlm_plugins" in sys.orig_argv:  # `sys.argv` has the module's path only later
    _remove_working_directory()

from typing import TYPE_CHECKING  # noqa: E402  # the lines above decide where these imports come from

from pluggy import HookimplMarker  # noqa: E402

__version__ = "0.1.0"

hookimpl = HookimplMarker("rlm")
"""Decorator of a plugin's function that implements a hook of :mod:`rlm_plugins.hookspecs`."""

_LAZY = {
    "GRPOTrainer": "api.trl_trainers",
    "RLOOTrainer": "api.trl_trainers",
    "PPOTrainer": "api.trl_trainers",
    "SFTTrainer": "api.trl_trainers",
    "RewardTrainer": "api.trl_trainers",
    "GRPOConfig": "trainer.config",
    "Equation": "equation.equation",
    "Run": "api.functions",
    "load": "api.functions",
    **dict.fromkeys(("check", "train", "evaluate", "algorithms", "explain", "part"), "api.functions"),
}
"""Public name → module that defines it."""
__all__ = ["__version__", "hookimpl", *_LAZY]


if TYPE_CHECKING:  # not `__getattr__`: to a type checker it would have every name
    from rlm_plugins.api.functions import Run as Run
    from rlm_plugins.api.functions import algorithms as algorithms
    from rlm_plugins.api.functions import check as check
    from rlm_plugins.api.functions import evaluate as evaluate
    from rlm_plugins.api.functions import explain as explain
    from rlm_plugins.api.functions import load as load
    from rlm_plugins.api.functions import part as part
    from rlm_plugins.api.functions import train as train
    from rlm_plugins.api.trl_trainers import GRPOTrainer as GRPOTrainer
    from rlm_plugins.api.trl_trainers import PPOTrainer as PPOTrainer
    from rlm_plugins.api.trl_trainers import RewardTrainer as RewardTrainer
    from rlm_plugins.api.trl_trainers import RLOOTrainer as RLOOTrainer
    from rlm_plugins.api.trl_trainers import SFTTrainer as SFTTrainer
    from rlm_plugins.equation.equation import Equation as Equation
    from rlm_plugins.trainer.config import GRPOConfig as GRPOConfig
else:

    def __getattr__(name: str) -> object:
        """Import a public name at first use."""
        import importlib

        if name not in _LAZY:
            raise AttributeError(f"module 'rlm_plugins' has no attribute '{name}'")
        value = globals()[name] = getattr(importlib.import_module(f"rlm_plugins.{_LAZY[name]}"), name)
        return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
