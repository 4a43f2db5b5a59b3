"""Packages that settings of a trainer require: checked before any weight is loaded."""

from __future__ import annotations

import importlib.util
from typing import Any

from rlm_plugins.errors import RecipeError, nearest

TRACKERS = {
    "azure_ml": "azureml-sdk",
    "clearml": "clearml",
    "codecarbon": "codecarbon",
    "comet_ml": "comet-ml",
    "dagshub": "dagshub mlflow",
    "dvclive": "dvclive",
    "flyte": "flytekit",
    "kubeflow": "kubeflow",
    "mlflow": "mlflow",
    "neptune": "neptune",
    "swanlab": "swanlab",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "wandb": "wandb",
}
"""Name in `report_to` → packages on PyPI."""
_PACKAGES = {"use_vllm": ("vllm", "trl[vllm]"), "use_liger_kernel": ("liger_kernel", "liger-kernel")}
_TURNED_OFF = {"use_vllm": "`rlm check RECIPE generator=none trainer.use_vllm=false`"}


def check_installed(config: Any, where: str) -> None:
    """Check that the packages of a config are installed: TRL imports them after the weights are loaded.

    Raises:
        RecipeError: It names the package, or a tracker that transformers does not support.
    """
    for field, (module, package) in _PACKAGES.items():
        if getattr(config, field, False) and importlib.util.find_spec(module) is None:
            remedy = _TURNED_OFF.get(field, "leave the field out")  # a generator may have set it
            hint = f"pip install '{package}'. To check the rest of a recipe: {remedy}"
            name = "vLLM" if module == "vllm" else package
            raise RecipeError(f"{name} is not installed", where=f"{where}.{field}", hint=hint)
    for name in config.report_to or ():
        if name not in ("none", "all"):
            check_tracker(name, f"{where}.report_to")


def require(module: str, where: str) -> None:
    """Check that a package is installed.

    Raises:
        RecipeError: It is not.
    """
    if importlib.util.find_spec(module) is None:
        raise RecipeError(f"{module} is not installed", where=where, hint=f"pip install {module}")


def check_tracker(name: str, where: str) -> None:
    """Check that transformers supports a tracker, and that its package is installed.

    Raises:
        RecipeError: The tracker is unknown, or its package is not installed.
    """
    from transformers.integrations import get_available_reporting_integrations
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    available, supported = get_available_reporting_integrations(), sorted({*INTEGRATION_TO_CALLBACK, *TRACKERS})
    if name in available:
        return
    if name not in supported:
        hint = nearest(name, supported) or "`report_to: none`, or a callback of your own under `callbacks:`"
        raise RecipeError(f"unknown tracker '{name}'", where=where, allowed=", ".join(["none", *supported]), hint=hint)
    hint = f"pip install {TRACKERS.get(name, name)}"
    raise RecipeError(f"'{name}' is not installed", where=where, allowed=", ".join(["none", *available]), hint=hint)
