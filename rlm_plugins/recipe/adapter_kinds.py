"""Kinds of PEFT adapters: `model.lora` with a `peft_type` is an adapter of that kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_plugins.errors import RecipeError, nearest

LORA, KEY = "LORA", "peft_type"
_VIRTUAL = "its virtual tokens cannot be merged into the weights, from which later stages and `rlm eval` start"
_WHOLE = "PEFT cannot build it without weights, as `rlm check` and the memory estimate do"
REFUSED = {
    "PREFIX_TUNING": _VIRTUAL,
    "PROMPT_TUNING": _VIRTUAL,
    "MULTITASK_PROMPT_TUNING": _VIRTUAL,
    "P_TUNING": _VIRTUAL,
    "CPT": _VIRTUAL,
    "CARTRIDGE": _VIRTUAL,
    "ADAPTION_PROMPT": "its prompt cannot be merged into the weights, from which later stages and `rlm eval` start",
    "ADALORA": "its ranks are chosen by a call after each step, which no trainer of TRL makes",
    "BOFT": _WHOLE,
    "FROD": _WHOLE,
    "UNILORA": _WHOLE,
    "BEFT": "it trains biases, and cannot be merged into layers without them",
    "LILY": "PEFT cannot merge it into the weights, from which later stages and `rlm eval` start",
    "SHADOW": "PEFT cannot merge it into the weights, from which later stages and `rlm eval` start",
    "PVERA": "its weights are drawn anew in each forward pass, so a log-prob is not that of the sample",
    "XLORA": "it mixes adapters that are trained already",
    "POLY": "it needs a task for each example",
}
"""Kinds that cannot be trained here, each with the reason."""


def kind_of(lora: Mapping[str, Any] | None) -> str:
    """Return the kind of an adapter, in PEFT's upper case.

    >>> kind_of({"r": 8}), kind_of({"peft_type": "loha"})
    ('LORA', 'LOHA')
    """
    return str((lora or {}).get(KEY) or LORA).upper()


def config_class(lora: Mapping[str, Any] | None, where: str = "model.lora") -> Any:
    """Return the config class of PEFT for an adapter.

    Raises:
        RecipeError: PEFT has no such kind, or it cannot be trained here.
    """
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    classes = {kind.value: config for kind, config in PEFT_TYPE_TO_CONFIG_MAPPING.items()}
    kind, where = kind_of(lora), f"{where}.{KEY}"
    if kind in REFUSED:
        raise RecipeError(f"an adapter of the kind '{kind}' cannot be trained: {REFUSED[kind]}", where=where)
    if kind not in classes:
        supported = sorted(set(classes) - set(REFUSED))
        raise RecipeError(
            f"unknown kind '{kind}'", where=where, allowed=", ".join(supported), hint=nearest(kind, supported)
        )
    return classes[kind]


def fields_of_adapter(lora: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the config class of an adapter, without its kind."""
    return {name: value for name, value in lora.items() if name != KEY}


def adapter_config(lora: Mapping[str, Any], task_type: str = "CAUSAL_LM") -> Any:
    """Return the config of an adapter.

    Args:
        lora: Fields of `model.lora`.
        task_type: `task_type` of PEFT, unless the recipe sets it.
    """
    return config_class(lora)(**{"task_type": task_type, **fields_of_adapter(lora)})
