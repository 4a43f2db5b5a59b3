"""The parts of the packages whose algorithms have a recipe in recipes/papers, as one plugin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rlm_algorithms
import rlm_intrinsic
import rlm_process
import rlm_worlds

from rlm_plugins import hookimpl
from rlm_plugins.equation.hooks import HOOKS

HIDDEN = (rlm_intrinsic, rlm_process)
"""Installed packages that `conftest` hides, so that this plugin offers their parts."""

PACKAGES = (*HIDDEN, rlm_worlds, rlm_algorithms)


def joined(name: str) -> Callable[[], dict[str, Any]]:
    def hook() -> dict[str, Any]:
        found = [getattr(package, name)() for package in HIDDEN if hasattr(package, name)]
        return {key: part for parts in found for key, part in parts.items()}

    return hookimpl(hook)


globals().update({name: joined(name) for name in HOOKS})
