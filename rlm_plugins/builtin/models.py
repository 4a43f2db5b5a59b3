"""π: initial policies (hook ``rlm_models``)."""

from __future__ import annotations

from typing import Any, Literal

from rlm_plugins import hookimpl
from rlm_plugins.equation.knobs import Count
from rlm_plugins.errors import RecipeError
from rlm_plugins.models.pretrained import Checkpoint, Dtype, model_spec, quantization_config
from rlm_plugins.models.scratch import CHARACTERS, build_config, build_model, build_tokenizer
from rlm_plugins.specs import ModelSpec

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
    path: str,
    revision: str | None = None,
    dtype: Dtype = "auto",
    attn_implementation: str | None = None,
    load_in_4bit: bool = False,
    quantization: dict[str, Any] | None = None,
    trust_remote_code: bool = False,
) -> ModelSpec:
    """Checkpoint: a folder of ``save_pretrained``, or a name on the Hugging Face hub.

    `dtype` is the type of the weights. "auto": as stored, but float32 on a machine without accelerator, where it is
    faster. To train all weights rather than an adapter use "float32": in bfloat16 a step of 1e-6 is lost to rounding.

    `load_in_4bit` quantizes the frozen weights under an adapter (QLoRA; requires bitsandbytes). `quantization` is any
    other quantization of transformers, ``{method: bitsandbytes_8bit}``, with the fields of its config class: ``{method:
    quanto, weights: int8}``. `attn_implementation` is that of transformers ("sdpa", "flash_attention_2", …).
    `trust_remote_code` runs Python code of the checkpoint.
    A vision-language model is loaded with its processor; its examples have a column `image` or `images`.
    If the hub does not respond, the cache is used without waiting; `HF_HUB_OFFLINE` is respected.
    """
    remote = {"revision": revision} if revision else {}
    checkpoint = Checkpoint(path, trust_remote_code=trust_remote_code, **remote)
    quantized = quantization_config(quantization, four_bits=load_in_4bit)
    return model_spec(checkpoint, dtype, quantized, attn_implementation, revision, runs_code=trust_remote_code)


@hookimpl
def rlm_models() -> dict[str, object]:
    return {"scratch": scratch, "pretrained": pretrained}
