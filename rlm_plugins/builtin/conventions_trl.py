"""Variants of TRL 1.16; registered by `conventions`.

Its advantage is `group_relative` with our defaults (n − 1, eps 1e-4, a group of one 0). It clamps no log-ratio before
`exp`; ours are clamped at ±20, far outside every clip range.
"""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm, variant
from rlm_plugins.builtin.algorithms import ALGORITHMS

MEAN = {"name": "sequence_mean", "empty_completions": "included"}

grpo = variant(
    ALGORITHMS["grpo"],
    about="GRPO as TRL computes it: the KL weighted by w, completions without tokens counted in the mean.",
    source="trl 1.16.0, GRPOConfig(loss_type='grpo', beta=0.04)",
    pitfalls="TRL's own defaults are another algorithm: loss_type 'dapo' and β = 0. TRL clamps no log-ratio before "
    "`exp`, neither in w nor in k3; ours are clamped at ±20.",
    penalties=({"name": "kl", "importance_weighted": True, "beta": 0.04},),
    aggregator=MEAN,
)

dr_grpo = variant(
    ALGORITHMS["dr_grpo"],
    about="Dr. GRPO as TRL computes it: completions without tokens are counted.",
    source="trl 1.16.0, GRPOConfig(loss_type='dr_grpo', scale_rewards='none')",
    pitfalls="The loss type alone keeps the division by the std: both settings are required.",
    aggregator={"name": "fixed_length", "empty_completions": "included"},
)

dapo = variant(
    ALGORITHMS["dapo"],
    about="DAPO as TRL implements it: only the loss, without dynamic sampling and without a length penalty.",
    source="trl 1.16.0, GRPOConfig(loss_type='dapo', epsilon_high=0.28)",
    pitfalls="TRL's default loss. Its epsilon_high is its epsilon, 0.2, until it is set. The soft length limit is "
    "one of its reward functions (`get_soft_overlong_punishment`): add the shaper `overlong`.",
    shapers=(),
    filters=(),
)

rloo = variant(
    ALGORITHMS["rloo"],
    about="RLOO as TRL computes it: PPO's clip on one ratio per completion.",
    source="trl 1.16.0, RLOOTrainer (beta=0.05, epsilon=0.2)",
    pitfalls="The ratio is a product over tokens: after one update long completions may be clipped altogether. Its "
    "option `normalize_advantages` is the scale 'batch'. For each completion without tokens TRL adds −Â, a constant.",
    shapers=({"name": "kl_in_reward", "beta": 0.05},),
    importance="sequence_sum",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator=MEAN,
)

gspo = variant(
    ALGORITHMS["gspo"],
    about="GSPO as TRL computes it: the paper's sequence ratio; completions without tokens are counted.",
    source="trl 1.16.0, GRPOConfig(importance_sampling_level='sequence', loss_type='grpo')",
    pitfalls="With TRL's default loss type, 'dapo', it is a token mean, and long completions weigh more.",
    aggregator=MEAN,
)

gmpo = variant(
    ALGORITHMS["gmpo"],
    about="GMPO as TRL computes it: completions without tokens are counted.",
    source="trl 1.16.0, experimental.gmpo",
    pitfalls="TRL also adds −Â for each completion without tokens: a constant, with no effect on the gradient.",
    aggregator=MEAN,
)

cispo = variant(
    ALGORITHMS["cispo"],
    about="CISPO as TRL computes it: the cap is 5, and there is no lower bound.",
    source="trl 1.16.0, GRPOConfig(loss_type='cispo', epsilon_high=5.0)",
    pitfalls="TRL's epsilon_high is the cap itself: its 5.0 is our 4.0, here and in `cispo`. "
    "With TRL's default of 0.2 every weight is 0.2.",
    policy_loss={"name": "cispo", "epsilon_high": 4.0},
)

sapo = variant(
    ALGORITHMS["sapo"],
    about="SAPO as TRL computes it: completions without tokens are counted.",
    source="trl 1.16.0, GRPOConfig(loss_type='sapo')",
    aggregator=MEAN,
)

gfpo = variant(
    ALGORITHMS["gfpo"],
    about="GFPO as TRL implemented it: by default without KL and without entropy.",
    source="trl 0.26.0, experimental.gfpo (removed in 1.16)",
    pitfalls="Completions that are filtered out are in no denominator. In the paper's formula they have advantage 0: "
    "with k of n kept its gradient is about k/n of this.",
    penalties=(),
)

flash_rl = variant(
    ALGORITHMS["flash_rl"],
    about="TRL's own correction for vLLM: the product of the token ratios; completions above 3 are masked.",
    source="trl 1.16.0, vllm_importance_sampling_mode='sequence_mask', vllm_importance_sampling_clip_max=3",
    pitfalls="Not the truncation FlashRL is named for, which is TRL's mode 'token_truncate'. A product over a "
    "long completion is rarely near 1: many completions are masked, and the others are weighted with it.",
    token_weights=({"name": "masked_importance", "low": 0.0, "high": 3.0, "level": "sequence"},),
)


def algorithms() -> dict[str, Algorithm]:
    """Return name → algorithm."""
    return {f"{name}@trl": value for name, value in globals().items() if isinstance(value, Algorithm)}
