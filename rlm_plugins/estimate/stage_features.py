"""Fast paths of a composed stage, with reasons from its model on the meta device; self-checks may turn off more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from rlm_plugins.estimate.decoding import decoding_plans, is_sharded
from rlm_plugins.estimate.meta_model import skeleton
from rlm_plugins.kernels.chunk_sizes import PRODUCTS
from rlm_plugins.kernels.model_traits import has_dropout
from rlm_plugins.packing import (
    PADDED,
    Feature,
    Features,
    max_packed_length,
    why_unsupported,
    zero_advantage_has_no_gradient,
)
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.stage import Stage
from rlm_plugins.step import Equation


class StageFeatures(Features):
    """Fast paths of a composed stage.

    Args:
        stage: Composed, with an equation and a model.
        args: Config of the trainer.
    """

    def __init__(self, stage: Stage, args: Any) -> None:
        assert stage.equation is not None
        super().__init__(
            stage.speed,
            stage.equation,
            args,
            sharded=is_sharded(args),
            load_balancing=has_load_balancing(stage, args),
            critic=stage.critic is not None,
            learners=stage.parts(),
        )
        self.stage = stage

    def __iter__(self) -> Iterator[Feature]:
        yield from super().__iter__()
        yield from (self.reuse_old_logprobs, self.prefetch_rewards)

    def applies(self, feature: Feature) -> bool:
        """Return True if a stage of this kind can use a feature at all."""
        if feature.name == "fused_lora":
            return self.stage.lora is not None
        if feature.name == "merge_micro_batches":
            return feature.on and self.merged_tokens >= 2 * self.args.per_device_train_batch_size
        if feature.name == "reuse_old_logprobs":
            return self.speed.reuse_old_logprobs and (self.needs_old_for_scoring or self.recomputes_old_logprobs)
        return feature.name != "prefetch_rewards" or bool(self._early_rewards)

    @cached_property
    def padding_free(self) -> Feature:
        """Padding-free passes, with their limit in length."""
        feature, limit = super().padding_free, self.max_packed_length
        if not feature.on or limit is None:
            return feature
        return replace(feature, detail=f"in batches up to {limit} tokens wide; wider ones are padded")

    @cached_property
    def dynamic_micro_batches(self) -> Feature:
        """Dynamic micro-batches, with their size in tokens."""
        feature, max_tokens = super().dynamic_micro_batches, self.speed.max_tokens_per_micro_batch
        if not feature.on:
            return feature
        if max_tokens is None:
            return replace(feature, detail=f"merged up to {self.merged_tokens:.0f} tokens, since the model is small")
        size = f"{self.args.per_device_train_batch_size} completions of full length"
        size = size if max_tokens == "auto" else str(max_tokens)
        return replace(feature, detail=f"as many tokens as {size}, each prompt counted once")

    def model_reason(self, name: str) -> str | None:
        """Return why the model, or the loss with its coefficients, does not support a fast path, or None."""
        if name == "padding_free":
            return why_unsupported(self.model)
        if name == "fused_lora":
            return self._why_not_fused()
        if name == "skip_zero_advantage":
            return self._why_not_skipped() if self.padding_free.on else PADDED
        return None

    @cached_property
    def model(self) -> Any:
        """The model with its adapters, on the meta device."""
        return skeleton(self.stage.source.config, self.stage.lora)

    @property
    def merged_tokens(self) -> float:
        """Most tokens of merged micro-batches: many for a small model."""
        return PRODUCTS / sum(x.numel() for x in self.model.parameters())

    @property
    def max_packed_length(self) -> int | None:
        """Longest packed sequence (tokens), or None for any."""
        return max_packed_length(self.stage.source.config)

    def _why_not_fused(self) -> str | None:
        """Return why no LoRA layer is fused, or None."""
        from peft.tuners.lora.layer import Linear

        from rlm_plugins.kernels.fused_lora import is_fusible

        if self.stage.lora is None:
            return "the stage has no LoRA"
        if any(type(layer) is Linear and is_fusible(layer) for layer in self.model.train().modules()):
            return None
        options = [name for name in ("lora_dropout", "use_dora", "lora_bias") if self.stage.lora.get(name)]
        return f"`{options[0]}` is set" if options else "none of its layers is plain, in float32"

    def _why_not_skipped(self) -> str | None:
        """Return the terms of the loss in which zero-advantage completions have a gradient, or None."""
        labels = [source.beside.get("as") or source.part.name for source in self.stage.rollouts]

        def has_no_gradient(equation: Equation) -> bool:
            return zero_advantage_has_no_gradient(equation, 0, labels)

        if has_no_gradient(self.equation):
            return None
        penalties = self.equation.penalties
        terms = [x.part.name for x in penalties if not has_no_gradient(replace(self.equation, penalties=[x]))]
        return f"they have a gradient in {', '.join(terms) or 'the policy loss, or in a statistic over the batch'}"

    @cached_property
    def reuse_old_logprobs(self) -> Feature:
        """Old log-probs without a pass of their own: from the first pass of the update, or from decoding."""
        name, scored = "reuse_old_logprobs", self.needs_old_for_scoring
        if self.args.use_vllm:
            return Feature(name, "log-probs of vLLM are not those of the policy")
        if self.first_pass_is_old and not scored:
            if has_dropout(self.model):
                return Feature(name, "dropout is on, and two passes have different masks")
            return Feature(name, detail="from the first pass over a generation")
        if self._records_logprobs() and not self.stage.rollouts and not self.args.bf16 and not self.args.fp16:
            limits = "if the weights are float32 and positions are relative; else recomputed"
            return Feature(name, detail=f"recorded during decoding, {limits}")
        return Feature(name, "a part needs them for scoring" if scored else "a generation is several optimizer steps")

    def _records_logprobs(self) -> bool:
        """Return True if the generator may return log-probs, as far as is known before the run."""
        part = self.stage.generator.part if self.stage.generator is not None else None
        if part is None or "return_logprobs" not in (*part.needs, *part.welcomes):
            return False
        with suppress(Exception):  # reported as that of the generator
            return not any(reason for reason, _ in decoding_plans(self.stage, self.args)[:1])
        return True

    @property
    def _early_rewards(self) -> list[str]:
        return [reward.label for reward in self.stage.rewards if hasattr(trl_reward(reward), "begin")]

    @cached_property
    def prefetch_rewards(self) -> Feature:
        """Asynchronous and multiprocess rewards that start during generation."""
        return replace(self._feature("prefetch_rewards"), detail=", ".join(self._early_rewards))


def has_load_balancing(stage: Stage, args: Any) -> bool:
    """Return True if TRL adds a load-balancing term over experts to the loss.

    Args:
        stage: With its model specification.
        args: Config of the trainer.
    """
    config, coefficient = stage.source.config.get_text_config(), args.router_aux_loss_coef
    if coefficient is None:
        coefficient = getattr(config, "router_aux_loss_coef", 0.0)
    return hasattr(config, "output_router_logits") and coefficient != 0
