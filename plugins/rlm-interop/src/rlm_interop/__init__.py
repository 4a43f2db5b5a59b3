"""Rewards, environments and model files that were written for other programs."""

from __future__ import annotations

from rlm_interop.foreign_rewards import OpenRlhf, Verl
from rlm_interop.gguf_model import gguf
from rlm_interop.verifiers_adapter import Rubric, verifiers
from rlm_plugins import hookimpl


@hookimpl
def rlm_environments() -> dict[str, object]:
    """Return the environments of this package by name."""
    return {"verifiers": verifiers}


@hookimpl
def rlm_rewards() -> dict[str, object]:
    """Return the rewards of this package by name."""
    return {"verl": Verl, "openrlhf": OpenRlhf, "verifiers": Rubric}


@hookimpl
def rlm_models() -> dict[str, object]:
    """Return the models of this package by name."""
    return {"gguf": gguf}
