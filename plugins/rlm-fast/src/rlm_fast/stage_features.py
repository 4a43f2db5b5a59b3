"""Fast paths of a composed stage, with reasons from its model on the meta device; self-checks may turn off more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Any

from rlm_fast import chunk_sizes
from rlm_fast.decoding_plans import decoding_plans
from rlm_fast.features import PADDED, Feature, Features
from rlm_fast.speed import NO_SPEED, Speed
from rlm_fast.support import max_packed_length, why_unsupported
from rlm_fast.zero_advantage import zero_advantage_has_no_gradient
from rlm_plugins.equation.equation import Equation
from rlm_plugins.models.adapters import has_dropout
from rlm_plugins.models.scratch import skeleton
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.context import DataNeeds
from rlm_plugins.trainer.options import observers_of_settings
from rlm_plugins.workers.distributed import sharding


class StageFeatures(Features):
    """Fast paths of a composed stage.

    Args:
        stage: Composed, with an equation and a model.
        args: Config of the trainer.
    """

    def __init__(self, stage: Stage, args: Any) -> None:
        assert stage.equation is not None
        super().__init__(
            speed_of(stage),
            stage.equation,
            args,
            DataNeeds(stage.equation, args, stage.parts()),
            sharded=bool(sharding(args)),
            load_balancing=has_load_balancing(stage, args),
            critic=stage.critic is not None,
        )
        self.stage = stage

    def __iter__(self) -> Iterator[Feature]:
        """Yield the fast paths that apply to a stage of this kind."""
        limit = max_packed_length(self.stage.source.config)
        widths = f"in batches up to {limit} tokens wide; wider ones are padded"
        yield replace(self.padding_free, detail="" if limit is None else widths)
        if self.stage.lora is not None:
            yield replace(self.fused_lora, detail="gated MLPs as one function" if self.fuses_mlp else "")
        yield self.skip_zero_advantage
        yield self.group_micro_batches
        dynamic, size = self.dynamic_micro_batches, self.args.per_device_train_batch_size
        if self.speed.max_tokens_per_micro_batch == "auto":
            yield replace(
                dynamic, detail=f"as many tokens as {size} completions of full length, each prompt counted once"
            )
        elif self.speed.max_tokens_per_micro_batch is not None:
            yield replace(dynamic, detail=f"{self.speed.max_tokens_per_micro_batch} tokens, each prompt counted once")
        elif dynamic.on:
            max_tokens = chunk_sizes.merged_tokens(self.num_parameters, chunk_sizes.MERGED_TOKENS)
            bound = "" if max_tokens > chunk_sizes.MERGED_TOKENS else ", at most a micro-batch of full length"
            yield replace(dynamic, detail=f"merged up to {max_tokens:.0f} tokens{bound}")
        if self.speed.reuse_old_logprobs and (self.needs.old_for_scoring or self.needs.old_by_trl):
            yield self.reuse_old_logprobs

    def model_reason(self, name: str) -> str | None:
        """Return why the model, or the loss with its coefficients, does not support a fast path, or None."""
        if name == "padding_free":
            return why_unsupported(self.model)
        if name == "fused_lora":
            return self._fused_lora_reason()
        if name == "skip_zero_advantage":
            return self._skip_reason() if self.padding_free.on else PADDED
        return None

    @cached_property
    def model(self) -> Any:
        """The model with its adapters, on the meta device."""
        return skeleton(self.stage.source.config, self.stage.lora)

    @property
    def num_parameters(self) -> int:
        """Parameters of the model, adapters included."""
        return sum(x.numel() for x in self.model.parameters())

    @property
    def fuses_mlp(self) -> bool:
        """True if a gated MLP is fused with its adapters; all layers count as large enough."""
        from rlm_fast.fused_mlp import has_fusible_layers

        return self.fused_lora.on and any(map(has_fusible_layers, self.model.train().modules()))

    def _fused_lora_reason(self) -> str | None:
        """Return why no LoRA layer is fused, or None."""
        from peft.tuners.lora.layer import Linear

        from rlm_fast.fused_lora import is_fusible

        if any(type(layer) is Linear and is_fusible(layer) for layer in self.model.train().modules()):
            return None
        options = [name for name in ("lora_dropout", "use_dora", "lora_bias") if (self.stage.lora or {}).get(name)]
        return f"`{options[0]}` is set" if options else "none of its layers is plain, in float32"

    def _skip_reason(self) -> str | None:
        """Return the terms of the loss in which zero-advantage completions have a gradient, or None."""
        labels = [source.options.get("as") or source.part.name for source in self.stage.rollouts]

        def has_no_gradient(equation: Equation) -> bool:
            return zero_advantage_has_no_gradient(equation, 0, labels)

        if has_no_gradient(self.equation):
            return None
        penalties = self.equation.penalties
        terms = [x.part.name for x in penalties if not has_no_gradient(replace(self.equation, penalties=[x]))]
        places = ", ".join(terms) or "the policy loss, or in a statistic over the batch"
        return f"with advantage 0 there is still a gradient in {places}"

    @cached_property
    def reuse_old_logprobs(self) -> Feature:
        """Old log-probs without a pass of their own: from the first pass of the update, or from decoding."""
        name, scored, is_first = "reuse_old_logprobs", self.needs.old_for_scoring, self.needs.first_pass_is_old
        if self.args.use_vllm:
            return Feature(name, "log-probs of vLLM are not those of the policy")
        if self._is_off_policy and not (is_first and not scored):
            return Feature(name, "the policy that generates is stale")
        if is_first and not scored:
            if has_dropout(self.model):
                return Feature(name, "dropout is on, and two passes have different masks")
            return Feature(name, detail="from the first pass over a generation")
        if self._records_logprobs() and not self.stage.rollouts and not self.args.bf16 and not self.args.fp16:
            limits = "if the weights are float32 and positions are relative; else recomputed"
            return Feature(name, detail=f"recorded during decoding, {limits}")
        return Feature(name, "a part needs them for scoring" if scored else "a generation is several optimizer steps")

    @property
    def _is_off_policy(self) -> bool:
        """True if a setting of a package lets an earlier policy generate."""
        return any(observer.is_off_policy for observer in observers_of_settings(self.args))

    def _records_logprobs(self) -> bool:
        """Return True if the generator may return log-probs, as far as is known before the run."""
        part = self.stage.generator.part if self.stage.generator is not None else None
        if part is None or "return_logprobs" not in part.data:
            return False
        with suppress(Exception):  # reported as that of the generator
            return not any(reason for reason, _ in decoding_plans(self.stage, self.args)[:1])
        return True


def speed_of(stage: Stage) -> Speed:
    """Return the section `speed` of a stage; all optimizations off if it has none."""
    part = stage.extensions.sections.get("speed")
    return part.target if part is not None and isinstance(part.target, Speed) else NO_SPEED


def has_load_balancing(stage: Stage, args: Any) -> bool:
    """Return True if TRL adds a load-balancing term over experts to the loss of a stage."""
    config, coefficient = stage.source.config.get_text_config(), args.router_aux_loss_coef
    if coefficient is None:
        coefficient = getattr(config, "router_aux_loss_coef", 0.0)
    return hasattr(config, "output_router_logits") and coefficient != 0
