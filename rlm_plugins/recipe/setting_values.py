"""Values of `trainer:` other than numbers: enumerated texts, mappings, and switches that make a resume inexact.

TRL and transformers declare these fields as any text or any mapping, and fail while the run starts, or never.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.messages import expected

_LEVELS = ("detail", "debug", "info", "warning", "error", "critical", "passive")
TEXT_VALUES: dict[str, tuple[str, ...]] = {
    "log_level": _LEVELS,
    "log_level_replica": _LEVELS,
    "train_sampling_strategy": ("random", "sequential", "group_by_length", "batch_rebalance"),
    "include_num_input_tokens_seen": ("all", "non_padding", "no"),
    "pad_to_multiple_of": ("auto",),
    "dataloader_multiprocessing_context": ("fork", "forkserver", "spawn"),
    "vllm_mode": ("colocate", "server"),
    "vllm_model_impl": ("vllm", "transformers"),
    "cache_implementation": (
        *("static", "offloaded_static", "sliding_window", "hybrid", "hybrid_chunked", "offloaded_hybrid"),
        *("offloaded_hybrid_chunked", "dynamic", "offloaded", "quantized"),
    ),
    "torch_compile_backend": (
        *(
            "eager",
            "aot_eager",
            "inductor",
            "aot_ts_nvfuser",
            "nvprims_nvfuser",
            "cudagraphs",
            "ofi",
            "fx2trt",
            "onnxrt",
        ),
        *("tensorrt", "aot_torchxla_trace_once", "torchxla_trace_once", "tvm", "hpu_backend", "neuron"),
    ),
}
"""Field → its texts, as transformers, accelerate and TRL document them; values of other types are not restricted."""
MAPPINGS = (
    "activation_checkpointing_kwargs",
    "chat_template_kwargs",
    "generation_kwargs",
    "gradient_checkpointing_kwargs",
    "liger_kernel_config",
    "lr_scheduler_kwargs",
    "model_init_kwargs",
    "transformers_continuous_batching_config",
)
"""Fields that some of the classes declare as a mapping or a text."""
_EXACT = "a resumed run would not end like an uninterrupted one"
SWITCHES = {
    "save_only_model": f"{_EXACT}: the state of the optimizer is in a checkpoint; `save_total_limit: 1` keeps one",
    "ignore_data_skip": f"{_EXACT}: it would train on the first examples again",
    "enable_jit_checkpoint": "SIGTERM saves a checkpoint anyway, and its handler is replaced by that of transformers",
}
"""Field that cannot be true → the reason."""


def check_setting(key: str, value: Any, where: str, settings: Mapping[str, Any]) -> None:
    """Check the value of a field.

    Args:
        key: The field.
        value: Its value.
        where: Its address in the recipe.
        settings: All fields that the recipe has.

    Raises:
        RecipeError: The value is not one of those that the field can have.
    """
    texts = TEXT_VALUES.get(key)
    if texts and isinstance(value, str) and value.lower() not in texts:
        hint = nearest(value, texts)
        raise RecipeError(f"unknown value {value!r}", where=where, allowed=", ".join(texts), hint=hint)
    if key in MAPPINGS and value is not None and not isinstance(value, Mapping):
        raise RecipeError(expected("a mapping", value), where=where)
    if value is True and key in SWITCHES:
        raise RecipeError(f"`{key}: true` is not supported", where=where, hint=SWITCHES[key])
    if key == "dataloader_multiprocessing_context" and value and not settings.get("dataloader_num_workers"):
        hint = "`dataloader_num_workers: 1` or more, or leave it out"
        raise RecipeError(f"`{key}` requires processes that load data", where=where, hint=hint)
    if key == "generation_kwargs" and value and not settings.get("use_vllm"):
        _check_generation(value, where)


def _check_generation(values: Mapping[str, Any], where: str) -> None:
    from transformers import GenerationConfig

    fields = {key for key in vars(GenerationConfig()) if not key.startswith("_")}
    for key in values:
        if key not in fields:
            allowed = "the fields of transformers.GenerationConfig"
            raise RecipeError(
                f"unknown key {key!r}", where=f"{where}.{key}", allowed=allowed, hint=nearest(key, fields)
            )
