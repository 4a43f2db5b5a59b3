"""Memory of a stage, estimated before any weight is loaded.

    peak = always + max(generation, update, critic update)

Weights, adapters, gradients and optimizer states are counted (:mod:`rlm_plugins.models.scratch`). Activations and
caches come from :mod:`rlm_fast.transformer`, those of a critic from :mod:`rlm_fast.critic_memory`. On
a CPU the process itself is included: Python and libraries hold more than a small model. Not included: CUDA's context
(about 1 GiB), fragmentation, images. Add about 10 % for these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlm_fast.critic_memory import critic_memory
from rlm_fast.load import Load
from rlm_fast.transformer import Transformer
from rlm_plugins.models.scratch import frozen_bytes, half_precision_copies, skeleton, trained_bytes
from rlm_plugins.registry.setting import PolicyBytes
from rlm_plugins.stage import Critic

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass(frozen=True)
class Estimate:
    """Bytes of a stage, by purpose.

    Args:
        parameters: Number of parameters, adapters included.
        trained: Number of trained parameters.
        always: In memory during the whole run.
        generation: In memory while completions are decoded.
        update: In memory during the update on a micro-batch.
        critic_update: In memory while a critic with a trunk of its own is updated, after the policy.
    """

    parameters: int
    trained: int
    always: Mapping[str, int]
    generation: Mapping[str, int]
    update: Mapping[str, int]
    critic_update: Mapping[str, int]

    @property
    def peak(self) -> int:
        """Bytes of the whole run plus the largest of the phases, which never overlap."""
        phases = (self.generation, self.update, self.critic_update)
        return sum(self.always.values()) + max(sum(terms.values()) for terms in phases)


def estimate(
    config: PretrainedConfig,
    lora: Mapping[str, Any] | None,
    load: Load,
    critic: Critic | None = None,
    of_settings: Callable[[PolicyBytes], Mapping[str, int]] = lambda policy: {},
) -> Estimate:
    """Estimate the memory of a stage.

    Args:
        config: Config of the model. Weights are in its `dtype`, or in four bits by its `quantization_config`.
        lora: Fields of ``peft.LoraConfig``, or None to train all weights.
        load: Sizes of the batches.
        critic: `critic:` of the stage.
        of_settings: Bytes of the policy → bytes that settings of packages keep in memory, by name.
    """
    model = skeleton(config, lora)
    transformer = Transformer.of_model(model, config, rank=lora.get("r", 8) if lora is not None else 0)
    trained = trained_bytes(model)
    critic_always, critic_update = critic_memory(config, critic, load)
    generation = {
        "KV cache": transformer.kv_cache(load.cached_tokens),
        "prefill activations": transformer.prefill(load.prefilled_tokens),
        "sampling": transformer.sampling(load),
        "merged and packed weights": load.copied_weights if load.generated else 0,
    }
    copy = frozen_bytes(model, config) + trained + load.process + sum(generation.values())
    return Estimate(
        parameters=sum(p.numel() for p in model.parameters()),
        trained=sum(p.numel() for p in model.parameters() if p.requires_grad),
        always={
            "frozen weights": frozen_bytes(model, config),
            "trained weights": trained,
            "gradients": trained,
            "optimizer state": int(trained * load.optimizer_state),
            "reference weights": trained if load.reference else 0,
            "models of parts": load.part_models,
            "process": load.process,
            **of_settings(PolicyBytes(trained, copy)),
            **critic_always,
        },
        generation=generation,
        update={
            "activations": transformer.activations(load),
            **_backward(transformer, load),
            "half-precision weights": half_precision_copies(model) if load.half else 0,
        },
        critic_update=critic_update,
    )


def _backward(transformer: Transformer, load: Load) -> dict[str, int]:
    """Return the bytes that the backward pass adds: the logits, or a recomputed layer if larger; never both."""
    head, layer = transformer.head(load), transformer.layer(load) if load.checkpointing else 0
    return {"log-probs": head} if head >= layer else {"recomputed layer": layer}
