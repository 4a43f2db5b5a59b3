"""Functions of packages that an installation may lack."""

from __future__ import annotations

import importlib
from typing import Any

from rlm_plugins.errors import RlmError


def require(module: str, package: str) -> Any:
    """Return a module of a package.

    Args:
        module: ``rlm_lab.explain``.
        package: What to install, ``rlm-lab``.

    Raises:
        RlmError: The package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.partition(".")[0]):
            raise
        problem = f"this function requires the package {package}"
        raise RlmError(problem, hint=f"pip install {package}") from error
