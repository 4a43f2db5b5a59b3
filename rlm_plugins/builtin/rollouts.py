"""Order of prompts, sources of completions, and decoding (``rlm_samplers``, ``rlm_rollouts``, ``rlm_generators``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import PositiveFloat

from rlm_plugins import hookimpl
from rlm_plugins.equation.statistics import in_order, shuffled

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig

Rollouts = dict[str, list[Any]]


def policy(prompts: Sequence[Any], trainer: Any, *, temperature: PositiveFloat | None = None) -> Rollouts:
    """Completions of the policy, with an explicit number per group or temperature.

    `temperature` divides the logits in generation (also that of other sources by the policy) and in forward passes, so
    that ratios are 1 on policy. By default it is `trainer.temperature`.
    """
    if temperature is not None:
        trainer.set_temperature(temperature)
    return {"completion_ids": [None] * len(prompts)}


@hookimpl
def rlm_rollouts() -> dict[str, object]:
    return {"policy": policy}


def transformers(generate: Callable[..., Any], inputs: Mapping[str, Any], config: GenerationConfig) -> torch.Tensor:
    """`transformers.generate`: every prompt is prefilled, and sequences are decoded until all are finished."""
    return generate(**inputs, generation_config=config)  # type: ignore[no-any-return]


def vllm(generate: Callable[..., Any], inputs: Mapping[str, Any], config: GenerationConfig) -> torch.Tensor:
    """The engine `vllm` (`trainer: {use_vllm: true}`), in training and evaluation; its knobs are under ``engine:``."""
    return generate(**inputs, generation_config=config)  # type: ignore[no-any-return]


vllm.trainer_settings = {"use_vllm": True}  # type: ignore[attr-defined]


@hookimpl
def rlm_generators() -> dict[str, object]:
    return {"transformers": transformers, "vllm": vllm}


@hookimpl
def rlm_samplers() -> dict[str, object]:
    return {"shuffled": shuffled, "in_order": in_order}
