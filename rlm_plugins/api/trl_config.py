"""Our config with the values of one of TRL's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from itertools import chain
from typing import Any

from rlm_plugins.recipe.resolve import Plan
from rlm_plugins.recipe.trl_fields import GRPO, decided
from rlm_plugins.trainer.config import GRPOConfig


def converted(args: Any, plan: Plan, fixed: Mapping[str, Any]) -> GRPOConfig:
    """Return our config with the values of TRL's: what the equation decides has TRL's default there.

    Args:
        args: :class:`trl.GRPOConfig` or :class:`trl.RLOOConfig`; unchanged.
        plan: The stage.
        fixed: Fields that the generator fixes.
    """
    result = object.__new__(GRPOConfig)  # the values are checked and derived already: no second `__post_init__`
    defaults = {f.name: f.default for f in dataclasses.fields(GRPOConfig)}
    result.__dict__.update({**defaults, **vars(args), **{name: defaults[name] for name in decided(GRPO)}, **fixed})
    slots = [slot if isinstance(slot, list) else [slot] for slot in plan.slots.values()]
    parts = [bound for bound in chain.from_iterable(slots) if bound]
    reads_reference = any(bound.part.requires("ref_logp") for bound in parts)
    result.beta = 1.0 if reads_reference else 0.0  # TRL's switch for the reference pass, not a coefficient
    result.reward_weights = (
        [reward.weight for reward in plan.stage.rewards] if args.reward_weights is not None else None
    )
    if any("rollout_logp" in weight.part.required_data for weight in plan.slots["token_weights"]):
        result.vllm_importance_sampling_correction = False  # TRL's would weigh again
    return result
