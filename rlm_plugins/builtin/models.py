"""π: what starts it (hook ``rlm_models``)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from rlm_plugins import hookimpl
from rlm_plugins.errors import RecipeError
from rlm_plugins.lazy import torch
from rlm_plugins.models.pretrained import Checkpoint, four_bit
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
    """A tiny transformer with random weights and its own tokenizer: no download, trains on a CPU in seconds.

    One token per character of `characters`, one for each of ``<think> </think> <answer> </answer>``; any other
    character is unknown to it. A chat template is included; with `tools` one that can call them, as
    ``<call>times a=3 b=4</call>``: a manner that the model must be shown (`characters` needs the letters). The weights
    depend on the sizes and on `seed` alone.
    """
    if hidden % (2 * heads):
        raise RecipeError(
            f"{hidden} hidden units do not divide into {heads} heads of an even size",
            where="model.hidden",
            allowed=f"a multiple of {2 * heads} (rotary positions turn pairs of units)",
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
    trust_remote_code: bool = False,
) -> ModelSpec:
    """A checkpoint: a folder written by ``save_pretrained``, or a name on the Hugging Face hub.

    `dtype` is what the weights are held in. "auto": as they are stored, except that a machine without accelerator
    takes float32, which its arithmetic is made for. To train all weights rather than an adapter ask for "float32":
    in bfloat16 a step of 1e-6 is lost to rounding.

    `load_in_4bit` quantises the frozen weights under an adapter (QLoRA; needs bitsandbytes). `attn_implementation`
    is transformers' own ("sdpa", "flash_attention_2", …). `trust_remote_code` runs Python from the checkpoint. A
    hub that gives no answer is not waited for: what the cache holds is used, and `HF_HUB_OFFLINE` is respected.
    """
    remote = {"revision": revision} if revision else {}
    checkpoint = Checkpoint(path, trust_remote_code=trust_remote_code, **remote)
    held: dict[str, Any] = {"dtype": _here(dtype), **({"quantization_config": four_bit()} if load_in_4bit else {})}
    attention = {"attn_implementation": attn_implementation} if attn_implementation else {}
    config = checkpoint.config()
    for name, value in held.items():  # the config describes the model before it is loaded
        setattr(config, name, getattr(config, name) if value == "auto" else value)

    return ModelSpec(
        config=config,
        tokenizer=checkpoint.tokenizer,
        load=lambda: checkpoint.model(**held, **attention),
        origin=f"{path}@{revision}" if revision else path,
    )


def _here(dtype: Dtype) -> str:
    """What "auto" means on this machine."""
    return "float32" if dtype == "auto" and not torch.accelerator.is_available() else dtype


@hookimpl
def rlm_models() -> dict[str, object]:
    return {"scratch": scratch, "pretrained": pretrained}
