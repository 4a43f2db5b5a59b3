"""How much memory a stage takes, before any weight is loaded.

Weights, adapters, gradients and optimiser states are counted: the model is built on PyTorch's meta device, which
knows shapes and types and holds no numbers. What a step needs on top is worked out in
:mod:`rlm_plugins.commands.block`. Not in it: CUDA's context (about 1 GiB), fragmentation, images; count on a tenth
more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlm_plugins.commands.block import Block
from rlm_plugins.errors import RecipeError

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig

FOUR_BIT = (4 + 0.127) / 8
"""Bytes per weight in 4-bit NormalFloat with double quantisation: 4 bits and 0.127 of constants (2305.14314 §3)."""


@dataclass(frozen=True)
class Load:
    """What a stage asks of the machine, per process.

    Args:
        rows: Completions written at once; 0: none are written here.
        prompt: Longest prompt, in tokens.
        completion: Longest completion (or demonstration), in tokens.
        micro_rows: Rows of one backward pass.
        checkpointing: Gradient checkpointing.
        half: Whether autocast computes matrix products in two bytes.
        state: Bytes of optimiser state per byte of trained weights: AdamW keeps two moments.
        reference: Whether a second, frozen copy of the weights is held.
        fused: Whether Triton scores the tokens (a GPU).
    """

    rows: int
    prompt: int
    completion: int
    micro_rows: int
    checkpointing: bool = False
    half: bool = False
    state: float = 2.0
    reference: bool = False
    fused: bool = False


@dataclass(frozen=True)
class Estimate:
    """Bytes, by what they are for.

    Args:
        parameters: Weights of the model, adapters included.
        trained: Those of them that are trained.
        always: Held from the first step to the last.
        writing: Held while completions are written.
        learning: Held while a micro-batch is learned from.
    """

    parameters: int
    trained: int
    always: Mapping[str, int]
    writing: Mapping[str, int]
    learning: Mapping[str, int]

    @property
    def peak(self) -> int:
        """What is always there, and the larger of the two that take turns."""
        return sum(self.always.values()) + max(sum(self.writing.values()), sum(self.learning.values()))


def estimate(config: PretrainedConfig, lora: Mapping[str, Any] | None, load: Load) -> Estimate:
    """The memory of a stage.

    Args:
        config: The model's. Its `dtype` is what the weights are held in; a `quantization_config` for four bits counts.
        lora: Fields of ``peft.LoraConfig``, or None to train all weights.
        load: What is done with it.
    """
    model = skeleton(config, lora)
    block = Block.of(model, config, rank=lora.get("r", 8) if lora is not None else 0)
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return Estimate(
        parameters=sum(p.numel() for p in model.parameters()),
        trained=sum(p.numel() for p in model.parameters() if p.requires_grad),
        always={
            "frozen weights": _frozen(model, config),
            "trained weights": trained,
            "their gradients": trained,
            "optimiser state": int(trained * load.state),
            "reference weights": trained if load.reference else 0,
        },
        writing={
            "keys and values": block.cache(load.rows * (load.prompt + load.completion)),
            "a layer reading the prompts": block.reading(load.rows * load.prompt),
            "next-token probabilities": block.choosing(load.rows),
        },
        learning={
            "activations": block.activations(load),
            "log-probabilities": block.head(load),
            "half-precision weights": 2 * sum(m.weight.numel() for m in _cast(model)) if load.half else 0,
        },
    )


def skeleton(config: PretrainedConfig, lora: Mapping[str, Any] | None) -> torch.nn.Module:
    """The model with its adapters, on the meta device."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(config, "dtype", None) or torch.float32)
        if lora is None:
            return model
        from peft import LoraConfig, get_peft_model

        try:
            return get_peft_model(model, LoraConfig(**{"task_type": "CAUSAL_LM", **lora}))
        except ValueError as error:  # such as target modules that this model does not have
            layers = sorted(
                {name.rpartition(".")[2] for name, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
            )
            raise RecipeError(f"PEFT refuses: {error}", where="model.lora", allowed=", ".join(layers)) from None


def _frozen(model: torch.nn.Module, config: PretrainedConfig) -> int:
    """Bytes of the frozen weights; four-bit ones are those of the linear layers inside the blocks."""
    frozen = [p for p in model.parameters() if not p.requires_grad]
    total = sum(p.numel() * p.element_size() for p in frozen)
    quantised: Any = getattr(config, "quantization_config", None)
    if not _says_four_bit(quantised):
        return total
    small = [p for p in (m.weight for m in _linear(model)) if not p.requires_grad]
    return int(total - sum(p.numel() * (p.element_size() - FOUR_BIT) for p in small))


def _says_four_bit(quantised: Any) -> bool:
    said = quantised if isinstance(quantised, Mapping) else vars(quantised) if quantised is not None else {}
    return bool(said.get("load_in_4bit") or said.get("_load_in_4bit"))


def _linear(model: torch.nn.Module) -> list[Any]:
    """Linear layers, without the one that predicts tokens."""
    import torch

    head: Any = model.get_output_embeddings()  # type: ignore[operator]
    return [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]


def _cast(model: torch.nn.Module) -> list[Any]:
    """Linear layers whose float32 weights autocast copies."""
    return [m for m in _linear(model) if m.weight.element_size() == 4]
