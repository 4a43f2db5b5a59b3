"""Decoding of the policy's completions (hook ``rlm_generators``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlm_plugins import hookimpl

if TYPE_CHECKING:
    import torch
    from transformers import GenerationConfig


def transformers(generate: Callable[..., Any], inputs: Mapping[str, Any], config: GenerationConfig) -> torch.Tensor:
    """`transformers.generate`: every prompt is prefilled, and sequences are decoded until all are finished."""
    return generate(**inputs, generation_config=config)  # type: ignore[no-any-return]


def vllm(generate: Callable[..., Any], inputs: Mapping[str, Any], config: GenerationConfig) -> torch.Tensor:
    """TRL's vLLM during training (`use_vllm`; `vllm_mode` and others belong to `trainer:`), transformers otherwise.

    It requires a GPU and is untested with vLLM itself; tests cover the settings passed to TRL.
    """
    return generate(**inputs, generation_config=config)  # type: ignore[no-any-return]


vllm.trainer_settings = {"use_vllm": True}  # type: ignore[attr-defined]


@hookimpl
def rlm_generators() -> dict[str, object]:
    return {"transformers": transformers, "vllm": vllm}
