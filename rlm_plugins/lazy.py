"""Imports at first use: ``from rlm_plugins.lazy import torch``, and modules of optional packages.

Listing parts must not cost the seconds that importing torch or transformers takes, so whatever runs before training
imports them from here. A third-party plugin may do the same, or simply write ``import torch``.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rlm_plugins.errors import RlmError

__all__ = ["datasets", "np", "optional_module", "pc", "peft", "psutil", "pyarrow", "torch", "transformers", "trl"]


class _Lazy(ModuleType):
    """A placeholder that imports its module at the first attribute access."""

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.__name__), name)
        setattr(self, name, value)
        return value


if TYPE_CHECKING:
    import datasets
    import numpy as np
    import peft
    import psutil
    import pyarrow
    import pyarrow.compute as pc
    import torch
    import transformers
    import trl
else:
    datasets, np, peft, psutil = map(_Lazy, ("datasets", "numpy", "peft", "psutil"))
    pyarrow, pc = map(_Lazy, ("pyarrow", "pyarrow.compute"))
    torch, transformers, trl = map(_Lazy, ("torch", "transformers", "trl"))


def optional_module(name: str, task: str) -> Any:
    """Import a module of a package that may be missing.

    Args:
        name: Name of the module, ``rlm_lab.why``; the distribution has the name of its package: ``rlm-lab``.
        task: What requires it, for the message: ``the page of a run``.

    Raises:
        RlmError: The package is not installed.

    >>> optional_module("rlm_none.why", "the diagnosis")
    Traceback (most recent call last):
        ...
    rlm_plugins.errors.RlmError: the diagnosis requires the package rlm-none
      hint: pip install rlm-none
    """
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        distribution = package.replace("_", "-")
        raise RlmError(f"{task} requires the package {distribution}", hint=f"pip install {distribution}") from error
