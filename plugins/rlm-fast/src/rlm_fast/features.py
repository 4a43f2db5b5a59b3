"""Fast paths of a stage: which are on, and why the others are off.

The trainer uses the reasons that follow from the recipe (`Features`), and finds those of the model when it runs.
``rlm check`` and the memory estimate add the reasons of a model on the meta device (`StageFeatures`), and the decoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rlm_fast import linear_layers
from rlm_fast.model_limits import has_dropout
from rlm_fast.packed_forward import max_packed_length, why_unsupported
from rlm_fast.speed import NO_SPEED, Speed
from rlm_fast.token_budget import sums_over_step, zero_advantage_has_no_gradient
from rlm_fast.weight_bytes import skeleton
from rlm_plugins.equation.equation import Equation
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.context import DataNeeds
from rlm_plugins.trainer.options import observers_of_settings
from rlm_plugins.workers.distributed import sharding

SHARDED = "the model is sharded"
LOAD_BALANCING = "the loss has a load-balancing term over experts (`router_aux_loss_coef`)"
PADDED = "forward passes are padded"


@dataclass(frozen=True)
class Feature:
    """One fast path.

    Args:
        name: Its key in `speed:` of a recipe.
        reason: Why it is off; None: it is on.
        detail: Kind or limits, if there are several.
    """

    name: str
    reason: str | None = None
    detail: str = ""

    @property
    def on(self) -> bool:
        return self.reason is None


@dataclass
class Features:
    """Fast paths of a stage, by name."""

    speed: Speed
    equation: Equation
    args: Any
    needs: DataNeeds
    sharded: bool = False
    load_balancing: bool = False
    critic: bool = False

    def model_reason(self, name: str) -> str | None:
        """Return why the model does not support a fast path, or None if that is unknown."""
        return None

    def _feature(self, name: str, *reasons: tuple[object, str]) -> Feature:
        """Return a feature, off for the first reason whose condition holds; the recipe comes first, the model last."""
        for condition, reason in ((not getattr(self.speed, name), f"`speed.{name}` is off"), *reasons):
            if condition:
                return Feature(name, reason)
        return Feature(name, self.model_reason(name))

    @cached_property
    def padding_free(self) -> Feature:
        """Forward passes without padding, each prompt once per group."""
        return self._feature(
            "padding_free",
            (self.args.cast_lm_head_to_fp32, "`cast_lm_head_to_fp32` replaces the language head"),
            (self.sharded, SHARDED),
            (self.load_balancing, LOAD_BALANCING),
        )

    @cached_property
    def fused_lora(self) -> Feature:
        """LoRA layers with a fused product."""
        return self._feature(
            "fused_lora",
            (self.args.fp16, "products are in float16"),
            (self.args.torch_compile, "`torch_compile` compiles the products"),
            (self.sharded, SHARDED),
        )

    @cached_property
    def skip_zero_advantage(self) -> Feature:
        """Updates without zero-advantage completions; whether the loss allows it is checked at each step."""
        return self._feature("skip_zero_advantage", *self.reasons_to_keep)

    @property
    def reasons_to_keep(self) -> tuple[tuple[bool, str], ...]:
        """Conditions under which zero-advantage completions are needed, each with its reason."""
        has_target = getattr(self.args, "target_kl", None) is not None
        return (self.critic, "the critic is trained on them"), (has_target, "`target_kl` measures all completions")

    @cached_property
    def group_micro_batches(self) -> Feature:
        """Micro-batches grouped by prompt; with padded passes that saves nothing and would change dropout masks."""
        spans = self.args.steps_per_generation % self.args.gradient_accumulation_steps
        return self._feature(
            "group_micro_batches",
            (not sums_over_step(self.equation), "the loss is a mean over micro-batches"),
            (spans, "an optimizer step spans generations"),
            (not self.padding_free.on, PADDED),
        )

    @cached_property
    def dynamic_micro_batches(self) -> Feature:
        """Micro-batches of as many completions as fit a token budget, or merged while they are small."""
        merges = self.speed.max_tokens_per_micro_batch is None
        is_single = merges and self.args.gradient_accumulation_steps <= 1
        return self._feature(
            "merge_micro_batches" if merges else "max_tokens_per_micro_batch",
            (is_single, "an optimizer step has one micro-batch"),
            (not self.group_micro_batches.on, "micro-batches are not grouped by prompt"),
            (not self.equation.is_per_sequence, "a part uses all completions of an optimizer step"),
        )


_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "cache_implementation")
"""Fields that TRL copies from its config to the `GenerationConfig` of transformers."""


def decoding_plans(stage: Stage, args: Any) -> list[tuple[str | None, int]]:
    """Return why a generator falls back to transformers, or None, and the bytes of its copies, per way of decoding.

    Training comes first, evaluation last; empty if the generator has no `dry_run`.
    """
    dry_run = getattr(stage.generator.target, "dry_run", None) if stage.generator is not None else None
    if stage.generator is None or dry_run is None:
        return []
    model, knobs = skeleton(stage.source.config, stage.lora), stage.generator.knobs
    plans = []
    # Train and eval mode may differ: dropout makes the generator fall back.
    for is_training, config in _generation_configs(stage, args):
        sharded = is_training and sharding(args)
        plans.append((SHARDED, 0) if sharded else dry_run(model.train(is_training), config, **knobs))
    return plans


def _generation_configs(stage: Stage, args: Any) -> Iterator[tuple[bool, Any]]:
    """Yield (True for training, `GenerationConfig`) of each way in which a stage decodes."""
    from transformers import GenerationConfig

    # transformers turns `use_cache` off in the config of a model that is trained, and decodes with the cache
    tokens_and_cache = {"eos_token_id": 0, "pad_token_id": 0, "disable_compile": True, "use_cache": True}
    if hasattr(args, "num_generations"):
        options = {"max_new_tokens": args.max_completion_length, "do_sample": True}
        options |= {name: getattr(args, name) for name in _SAMPLING} | (args.generation_kwargs or {})
        yield True, GenerationConfig(**{**tokens_and_cache, **options})
    if stage.evaluation is not None:
        yield False, GenerationConfig(max_new_tokens=stage.longest_completion, do_sample=False, **tokens_and_cache)


class StageFeatures(Features):
    """Fast paths of a composed stage."""

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
            max_tokens = linear_layers.merged_tokens(self.num_parameters, linear_layers.MERGED_TOKENS)
            bound = "" if max_tokens > linear_layers.MERGED_TOKENS else ", at most a micro-batch of full length"
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
        return skeleton(self.stage.source.config, self.stage.lora)

    @property
    def num_parameters(self) -> int:
        return sum(x.numel() for x in self.model.parameters())

    @property
    def fuses_mlp(self) -> bool:
        """True if a gated MLP is fused with its adapters; all layers count as large enough."""
        from rlm_fast.fused_layers import has_fusible_layers

        return self.fused_lora.on and any(map(has_fusible_layers, self.model.train().modules()))

    def _fused_lora_reason(self) -> str | None:
        """Return why no LoRA layer is fused, or None."""
        from peft.tuners.lora.layer import Linear

        from rlm_fast.fused_layers import is_fusible

        if getattr(self.stage.source.config, "quantization_config", None) is not None:
            return "the base is quantized"
        if any(type(layer) is Linear and is_fusible(layer) for layer in self.model.train().modules()):
            return None
        options = [name for name in ("lora_dropout", "use_dora", "lora_bias") if (self.stage.lora or {}).get(name)]
        return f"`{options[0]}` is set" if options else "none of its layers is plain, in float32 or bfloat16"

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
        is_off_policy = any(observer.is_off_policy for observer in observers_of_settings(self.args))
        if is_off_policy and not (is_first and not scored):
            return Feature(name, "the policy that generates is stale")
        if is_first and not scored:
            if has_dropout(self.model):
                return Feature(name, "dropout is on, and two passes have different masks")
            return Feature(name, detail="from the first pass over a generation")
        if self._records_logprobs() and not self.stage.rollouts:
            if self.args.bf16 or self.args.fp16 or next(self.model.parameters()).element_size() < 4:
                return Feature(name, "half precision rounds differently in decoding: the first ratio would not be 1")
            return Feature(name, detail="recorded during decoding, if positions are relative; else recomputed")
        return Feature(name, "a part needs them for scoring" if scored else "a generation is several optimizer steps")

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
