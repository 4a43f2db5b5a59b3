"""Quantization of frozen weights under an adapter: the methods of transformers, by name."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping
from typing import Any

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.lazy import torch

PACKAGES = {
    "bitsandbytes_4bit": "bitsandbytes",
    "bitsandbytes_8bit": "bitsandbytes",
    "hqq": "hqq",
    "quanto": "optimum-quanto",
    "torchao": "torchao",
    "eetq": "eetq",
    "gptq": "gptqmodel",
    "awq": "gptqmodel",
}
"""Method → package on PyPI that it requires."""
_MODULES = {"optimum-quanto": "optimum.quanto"}
_WIDTH = {"bitsandbytes_4bit": {"load_in_4bit": True}, "bitsandbytes_8bit": {"load_in_8bit": True}}
"""Fields that the name of a method sets."""


def quantization_config(settings: Mapping[str, Any] | None, *, four_bits: bool) -> Any:
    """Return the quantization of the weights, or None.

    Args:
        settings: ``{"method": NAME, fields…}``, of the config class of transformers.
        four_bits: True for QLoRA's.

    Raises:
        RecipeError: Unknown method or field, a wrong value, or its package is not installed.
    """
    if settings is None:
        return four_bit() if four_bits else None
    where = "model.quantization"
    if four_bits:
        raise RecipeError("`load_in_4bit` and `quantization` exclude each other", where=where, hint="keep one of them")
    from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING as KINDS

    method = str(settings.get("method") or "")
    fields = {name: value for name, value in settings.items() if name != "method"}
    if method not in KINDS:
        problem = f"unknown method {method!r}" if method else "the key 'method' is missing"
        allowed, hint = ", ".join(sorted(KINDS)), nearest(method, list(KINDS))
        raise RecipeError(problem, where=f"{where}.method", allowed=allowed, hint=hint)
    accepted = [p.name for p in inspect.signature(KINDS[method]).parameters.values() if p.kind is not p.VAR_KEYWORD]
    for name in fields:
        if name not in accepted:
            problem = f"unknown field '{name}' of transformers.{KINDS[method].__name__}"
            raise RecipeError(
                problem, where=f"{where}.{name}", allowed=", ".join(accepted), hint=nearest(name, accepted)
            )
    require(method, f"{where}.method")
    try:
        return KINDS[method](**_WIDTH.get(method, {}), **fields)
    except Exception as error:
        raise RecipeError(f"{KINDS[method].__name__} refuses: {error}", where=where) from None


def four_bit() -> Any:
    """Return the quantization of QLoRA (arXiv 2305.14314): 4-bit NormalFloat, double quantization, bfloat16 compute.

    Raises:
        RecipeError: bitsandbytes is not installed.
    """
    require("bitsandbytes_4bit", "model.load_in_4bit")
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def require(method: str, where: str) -> None:
    """Check that the package of a method is installed.

    Raises:
        RecipeError: It is not.
    """
    package = PACKAGES.get(method)
    if package is None or _is_installed(_MODULES.get(package, package)):
        return
    problem = f"`{where.rpartition('.')[2]}` requires the package {package}, which is not installed"
    raise RecipeError(problem, where=where, hint=f"pip install {package}")


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing too
        return False
