"""Table of the fields of TRL's configs that the equation decides, each with its slot and knob.

Read by :mod:`rlm_plugins.recipe.trl_fields`, in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Slots = dict[str, Any]
"""Slot → part as a mapping with its knobs, or a list of parts."""
GRPO, RLOO = "GRPOConfig", "RLOOConfig"
ALWAYS = object()
"""Marks a field that never removes its part."""


@dataclass(frozen=True)
class Choice:
    """A field whose value names parts.

    Args:
        config: Class of the config.
        field: Name of the field.
        parts: Value → slot → part, with the knobs that it fixes.
    """

    config: str
    field: str
    parts: Mapping[Any, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Knob:
    """A field that is the value of a knob.

    Args:
        config: Class of the config.
        field: Name of the field.
        slot: Slot of the part.
        part: The part; of a slot with one part, the field counts only if this part is in it.
        knob: The knob, or a key beside it (``beta``).
        absent: Value for which a slot with several parts has no such part.
        values: Value of the field → value of the knob; empty: the same.
        offset: Number that is added to the field's.
        fallback: Field that counts where this one is None; empty: the knob is None too.
        item: Position in the field's value, if that is a sequence.
    """

    config: str
    field: str
    slot: str
    part: str
    knob: str
    absent: Any = ALWAYS
    values: Mapping[Any, Any] | None = None
    offset: float = 0.0
    fallback: str = ""
    item: int | None = None

    @property
    def address(self) -> str:
        """Slot, part and knob, as `rlm explain` spells them."""
        return f"{self.slot}: {self.part}.{self.knob}"


CLIP = {"name": "clip"}
PER_SEQUENCE = {"empty_completions": "included"}
CHOICES = (
    Choice(
        GRPO,
        "loss_type",
        {
            "grpo": {"policy_loss": CLIP, "aggregator": {"name": "sequence_mean", **PER_SEQUENCE}},
            "bnpo": {"policy_loss": CLIP, "aggregator": {"name": "micro_batch_token_mean"}},
            "dr_grpo": {"policy_loss": CLIP, "aggregator": {"name": "fixed_length", **PER_SEQUENCE}},
            "dapo": {"policy_loss": CLIP, "aggregator": {"name": "token_mean"}},
            "luspo": {"policy_loss": CLIP, "aggregator": {"name": "sequence_sum", **PER_SEQUENCE}},
            "cispo": {"policy_loss": {"name": "cispo"}, "aggregator": {"name": "token_mean"}},
            "sapo": {"policy_loss": {"name": "sapo"}, "aggregator": {"name": "sequence_mean", **PER_SEQUENCE}},
            "vespo": {"policy_loss": {"name": "vespo"}, "aggregator": {"name": "token_mean"}},
        },
    ),
    Choice(
        GRPO,
        "importance_sampling_level",
        {"token": {"importance": {"name": "token"}}, "sequence": {"importance": {"name": "sequence"}}},
    ),
    Choice(
        GRPO,
        "multi_objective_aggregation",
        {
            "sum_then_normalize": {"advantage": {"name": "group_relative"}},
            "normalize_then_sum": {"advantage": {"name": "per_reward"}},
        },
    ),
    Choice(
        GRPO,
        "use_adaptive_entropy",
        {False: {}, True: {"penalties": {"name": "adaptive_entropy", "beta": 1.0}}},
    ),
)
_BONUS = {"aggregator": "micro_batch_token_mean"}
"""TRL adds its entropy bonus as the token mean of a micro-batch, whatever the loss type."""
_SCALES = {"group": "group", "batch": "batch", "none": "none", True: "group", False: "none"}
_ENTROPY = "penalties", "adaptive_entropy"
KNOBS = (
    Knob(GRPO, "epsilon", "policy_loss", "clip", "epsilon"),
    Knob(GRPO, "epsilon_high", "policy_loss", "clip", "epsilon_high"),
    Knob(GRPO, "epsilon_high", "policy_loss", "cispo", "epsilon_high", offset=-1.0, fallback="epsilon"),
    Knob(GRPO, "delta", "policy_loss", "clip", "delta"),
    Knob(GRPO, "sapo_temperature_pos", "policy_loss", "sapo", "tau_positive"),
    Knob(GRPO, "sapo_temperature_neg", "policy_loss", "sapo", "tau_negative"),
    Knob(GRPO, "vespo_k_pos", "policy_loss", "vespo", "k_positive"),
    Knob(GRPO, "vespo_lambda_pos", "policy_loss", "vespo", "lambda_positive"),
    Knob(GRPO, "vespo_k_neg", "policy_loss", "vespo", "k_negative"),
    Knob(GRPO, "vespo_lambda_neg", "policy_loss", "vespo", "lambda_negative"),
    Knob(GRPO, "scale_rewards", "advantage", "group_relative", "scale", values=_SCALES),
    Knob(GRPO, "off_policy_mask_threshold", "token_weights", "off_policy_mask", "threshold", absent=None),
    Knob(GRPO, "top_entropy_quantile", "token_weights", "top_entropy", "share", absent=1.0),
    Knob(GRPO, "beta", "penalties", "kl", "beta", absent=0.0),
    Knob(GRPO, "use_bias_correction_kl", "penalties", "kl", "importance_weighted"),
    Knob(GRPO, "entropy_coef", "penalties", "entropy", "beta", absent=0.0),
    Knob(GRPO, "entropy_coef", *_ENTROPY, "start"),
    Knob(GRPO, "entropy_target", *_ENTROPY, "target"),
    Knob(GRPO, "entropy_coef_delta", *_ENTROPY, "delta"),
    Knob(GRPO, "entropy_coef_min", *_ENTROPY, "minimum"),
    Knob(GRPO, "entropy_coef_max", *_ENTROPY, "maximum"),
    Knob(RLOO, "reward_clip_range", "shapers", "bounded", "low", absent=None, item=0),
    Knob(RLOO, "reward_clip_range", "shapers", "bounded", "high", absent=None, item=1),
    Knob(RLOO, "beta", "shapers", "kl_in_reward", "beta", absent=0.0),
    Knob(RLOO, "normalize_advantages", "advantage", "leave_one_out", "scale", values={False: "none", True: "batch"}),
    Knob(RLOO, "epsilon", "policy_loss", "clip", "epsilon"),
    Knob(RLOO, "epsilon_high", "policy_loss", "clip", "epsilon_high"),
)
FIXED: Mapping[str, Slots] = {
    GRPO: {},
    RLOO: {
        "advantage": {"name": "leave_one_out"},
        "importance": {"name": "sequence_sum"},
        "policy_loss": CLIP,
        "aggregator": {"name": "sequence_mean", **PER_SEQUENCE},
    },
}
"""Parts of each trainer that no field changes."""
ADDED = {"entropy": _BONUS, "adaptive_entropy": _BONUS}
"""Part → keys that it has beside those of the table."""
