"""Fast paths of a stage: which are on, and why the others are off.

The trainer, ``rlm check`` and the memory estimate use this one list. Here are the reasons that follow from the recipe.
`stage_features.py` adds those that follow from the model; the trainer finds these when it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rlm_fast.prompt_groups import sums_over_step
from rlm_fast.speed import Speed
from rlm_plugins.equation.equation import Equation
from rlm_plugins.trainer.context import DataNeeds

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
        """True if the fast path is used."""
        return self.reason is None


@dataclass
class Features:
    """Fast paths of a stage, by name.

    Args:
        speed: `speed:` of the recipe.
        equation: The parts of the algorithm.
        args: Config of the trainer.
        needs: Data that the parts need before the update.
        sharded: The model is sharded (FSDP, DeepSpeed).
        load_balancing: The loss has a load-balancing term over experts.
        critic: The stage has a critic.
    """

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
            (self.args.bf16 or self.args.fp16, "products are in half precision"),
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
