"""Fields of TRL's configs that the equation decides, read from TRL to the recipe and back.

The table is :mod:`rlm_plugins.recipe.trl_fields`. Errors of ``trainer:``, `rlm explain FIELD` and the trainers of
the Python API read the same rows.
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
    """A field of a config class whose value names parts: value → slot → part, with the knobs that it fixes."""

    config: str
    field: str
    parts: Mapping[Any, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Knob:
    """A field that is the value of a knob, or of a key beside it (``beta``).

    Args:
        config: Class of the config.
        field: Name of the field.
        slot: Slot of the part.
        part: The part; of a slot with one part, the field counts only if this part is in it.
        knob: The knob.
        absent: Value for which a slot with several parts has no such part.
        values: Value of the field → value of the knob; None: the same.
        offset: Number that is added to the field's.
        fallback: Field that counts where this one is None.
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


def decided(config: str) -> list[str]:
    """Return the fields of a config class that the equation decides.

    >>> "epsilon" in decided("GRPOConfig"), "learning_rate" in decided("GRPOConfig")
    (True, False)
    """
    return list(dict.fromkeys(row.field for row in (*CHOICES, *KNOBS) if row.config == config))


def slot_of(config: str, field: str) -> str:
    """Return the recipe key that corresponds to a field of TRL's config; empty for fields that have the same name.

    >>> slot_of("GRPOConfig", "delta")
    'algorithm.policy_loss: {name: clip, delta: …}'
    """
    for choice in CHOICES:
        if (choice.config, choice.field) == (config, field):
            slots = dict.fromkeys(slot for parts in choice.parts.values() for slot in parts)
            return " and ".join(f"algorithm.{slot}" for slot in slots)
    rows = [row for row in KNOBS if (row.config, row.field) == (config, field)]
    return " or ".join(f"algorithm.{row.slot}: {{name: {row.part}, {row.knob}: …}}" for row in rows)


def algorithm_of(config: str, values: Mapping[str, Any], weights: Mapping[str, float] | None = None) -> Slots:
    """Return the slots of the algorithm that is equivalent to a config of TRL."""
    slots: Slots = {slot: dict(part) for slot, part in FIXED[config].items()}
    slots |= {"shapers": [], "token_weights": [], "penalties": []}
    for choice in (choice for choice in CHOICES if choice.config == config):
        for slot, part_spec in choice.parts[values[choice.field]].items():
            if isinstance(slots.get(slot), list):
                slots[slot].append({**part_spec, **ADDED.get(part_spec["name"], {})})
            else:
                slots[slot] = dict(part_spec)
    for row in (row for row in KNOBS if row.config == config):
        part: Any = _part(slots, row)
        if part is None and row.absent is not ALWAYS and values[row.field] != row.absent and not _replaced(slots, row):
            part = {"name": row.part, **ADDED.get(row.part, {})}
            slots[row.slot].append(part)
        if part is not None:
            part[row.knob] = _to_knob(row, values)
    if weights and slots["advantage"]["name"] == "per_reward":
        slots["advantage"]["weights"] = dict(weights)
    return slots


def fields_of(config: str, slots: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of TRL's config that are equivalent to an algorithm, without those that it does not decide."""
    fields: dict[str, Any] = {}
    for choice in (choice for choice in CHOICES if choice.config == config):
        matching = [value for value, parts in choice.parts.items() if _has(slots, parts)]
        if matching:
            fields[choice.field] = matching[-1]
    for row in (row for row in KNOBS if row.config == config):
        part = _part(slots, row)
        if part is not None:
            fields[row.field] = _to_field(row, part, fields.get(row.field))
        elif row.absent is not ALWAYS and not _replaced(slots, row):
            fields.setdefault(row.field, row.absent)
    return fields


def _has(slots: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return True if each slot has the part, with the knobs that the choice fixes."""
    return all(
        any(expected.items() <= part.items() for part in _listed(slots, slot)) for slot, expected in parts.items()
    )


def _part(slots: Mapping[str, Any], row: Knob) -> dict[str, Any] | None:
    """Return the part that a row is about, if it is in its slot."""
    return next((part for part in _listed(slots, row.slot) if part["name"] == row.part), None)


def _listed(slots: Mapping[str, Any], slot: str) -> list[dict[str, Any]]:
    parts = slots.get(slot) or []
    return parts if isinstance(parts, list) else [parts]


def _replaced(slots: Mapping[str, Any], row: Knob) -> bool:
    """Return True if another part takes the value of the field: the start of an adaptive coefficient."""
    rows = [other for other in KNOBS if (other.config, other.field) == (row.config, row.field) and other != row]
    return any(other.part != row.part and _part(slots, other) is not None for other in rows)


def _to_knob(row: Knob, values: Mapping[str, Any]) -> Any:
    value = values[row.field]
    if value is None and row.fallback:
        value = values[row.fallback]
    if row.item is not None:
        value = value[row.item]
    if row.values is not None:
        return row.values[value]
    return value + row.offset if row.offset else value


def _to_field(row: Knob, part: Mapping[str, Any], previous: Any) -> Any:
    value: Any = part.get(row.knob)
    if row.item is not None:
        return (*(previous or ())[: row.item], value)
    if row.values is not None:
        return next((field for field, knob in row.values.items() if knob == value), None)
    return round(value - row.offset, 12) if row.offset else value
