"""How much memory a stage takes, before any weight is loaded.

    peak = always + max(writing, learning, valuing)

Weights, adapters, gradients and optimiser states are counted (:mod:`rlm_plugins.estimate.meta_model`); what a step
needs on top is worked out in :mod:`rlm_plugins.estimate.transformer`, what a critic adds in
:mod:`rlm_plugins.estimate.critic`. Not in it: CUDA's context (about 1 GiB), fragmentation, images; count on a tenth
more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlm_plugins.estimate.critic import critic_memory
from rlm_plugins.estimate.meta_model import frozen_bytes, half_precision_copies, skeleton, trained_bytes
from rlm_plugins.estimate.transformer import Block
from rlm_plugins.stage import Critic

if TYPE_CHECKING:
    from transformers import PretrainedConfig


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
        copies: Bytes of the layers that stand beside the model's while rows are written, adapters added to them,
            weights laid out.
        others: Bytes of the models that parts hold beside the policy.
        trees: Prompts of a micro-batch that is read packed, each once for its completions; 0: it is read padded.
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
    copies: int = 0
    others: int = 0
    trees: int = 0

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch, all as long as they may get; packed, the last of a completion is not read."""
        if self.trees:
            return self.trees * self.prompt + self.micro_rows * (self.completion - 1)
        return self.micro_rows * (self.prompt + self.completion)


@dataclass(frozen=True)
class Estimate:
    """Bytes, by what they are for.

    Args:
        parameters: Weights of the model, adapters included.
        trained: Those of them that are trained.
        always: Held from the first step to the last.
        writing: Held while completions are written.
        learning: Held while a micro-batch is learned from.
        valuing: Held while a critic with a trunk of its own learns from the same, once the policy has.
    """

    parameters: int
    trained: int
    always: Mapping[str, int]
    writing: Mapping[str, int]
    learning: Mapping[str, int]
    valuing: Mapping[str, int]

    @property
    def peak(self) -> int:
        """What is always there, and the largest of those that take turns."""
        turns = (self.writing, self.learning, self.valuing)
        return sum(self.always.values()) + max(sum(terms.values()) for terms in turns)


def estimate(
    config: PretrainedConfig, lora: Mapping[str, Any] | None, load: Load, critic: Critic | None = None
) -> Estimate:
    """The memory of a stage.

    Args:
        config: The model's. Its `dtype` is what the weights are held in; a `quantization_config` for four bits counts.
        lora: Fields of ``peft.LoraConfig``, or None to train all weights.
        load: What is done with it.
        critic: As the stage has it.
    """
    model = skeleton(config, lora)
    block = Block.of(model, config, rank=lora.get("r", 8) if lora is not None else 0)
    trained = trained_bytes(model)
    always, valuing = critic_memory(config, critic, load)
    return Estimate(
        parameters=sum(p.numel() for p in model.parameters()),
        trained=sum(p.numel() for p in model.parameters() if p.requires_grad),
        always={
            "frozen weights": frozen_bytes(model, config),
            "trained weights": trained,
            "their gradients": trained,
            "optimiser state": int(trained * load.state),
            "reference weights": trained if load.reference else 0,
            "models of parts": load.others,
            **always,
        },
        writing={
            "keys and values": block.cache(load.rows * (load.prompt + load.completion)),
            "a layer reading the prompts": block.reading(load.rows * load.prompt),
            "next-token probabilities": block.choosing(load),
            "layers to write with": load.copies if load.rows else 0,
        },
        learning={
            "activations": block.activations(load),
            **_then(block, load),
            "half-precision weights": half_precision_copies(model) if load.half else 0,
        },
        valuing=valuing,
    )


def _then(block: Block, load: Load) -> dict[str, int]:
    """What the backward pass adds: the logits, or with checkpointing a layer, if that is more; they take turns."""
    head, layer = block.head(load), block.layer(load) if load.checkpointing else 0
    return {"log-probabilities": head} if head >= layer else {"a layer read again": layer}
