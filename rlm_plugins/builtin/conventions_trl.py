"""TRL 1.16's numbers. (Offered by `conventions`.)

Its advantage is `group_relative` as it stands (n − 1, eps 1e-4, a group of one 0). It clamps no log-ratio before `exp`;
ours stop at ±20, where nothing is left to learn.
"""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm, variant
from rlm_plugins.builtin import algorithms as table
from rlm_plugins.builtin import algorithms_by_advantage as by_advantage
from rlm_plugins.builtin import algorithms_by_loss as by_loss

MEAN = {"name": "sequence_mean", "empty_rows": "counted"}

grpo = variant(
    table.grpo,
    about="GRPO as TRL computes it: the KL weighed by w, rows without tokens counted in the mean.",
    source="trl 1.16.0, GRPOConfig(loss_type='grpo', beta=0.04)",
    pitfalls="TRL's own defaults are another row: loss_type 'dapo' and β = 0. TRL clamps no log-ratio before `exp`, "
    "neither in w nor in k3; ours stop at ±20.",
    penalties=({"name": "kl", "importance_weighted": True, "beta": 0.04},),
    aggregator=MEAN,
)

dr_grpo = variant(
    table.dr_grpo,
    about="Dr. GRPO as TRL computes it: rows without tokens are counted.",
    source="trl 1.16.0, GRPOConfig(loss_type='dr_grpo', scale_rewards='none')",
    pitfalls="The loss type alone leaves the division by the std on: it takes both settings.",
    aggregator={"name": "fixed_length", "empty_rows": "counted"},
)

dapo = variant(
    table.dapo,
    about="DAPO as TRL has it: the loss alone, without dynamic sampling and without a length limit in the reward.",
    source="trl 1.16.0, GRPOConfig(loss_type='dapo', epsilon_high=0.28)",
    pitfalls="TRL's default loss. Its epsilon_high is its epsilon, 0.2, until it is set. The soft length limit is "
    "one of its reward functions (`get_soft_overlong_punishment`): add the shaper `overlong`.",
    shapers=(),
    filters=(),
)

rloo = variant(
    table.rloo,
    about="RLOO as TRL computes it: PPO's clip on the ratio of whole completions.",
    source="trl 1.16.0, RLOOTrainer (beta=0.05, epsilon=0.2)",
    pitfalls="The ratio is a product over tokens: after one update long rows may be clipped altogether. Its option "
    "`normalize_advantages` is the scale 'batch'. For each row without tokens TRL adds −Â, a constant.",
    shapers=({"name": "kl_in_reward", "beta": 0.05},),
    importance="sequence_sum",
    policy_loss={"name": "clip", "epsilon": 0.2},
    aggregator=MEAN,
)

gspo = variant(
    table.gspo,
    about="GSPO as TRL computes it: the paper's sequence ratio; rows without tokens are counted.",
    source="trl 1.16.0, GRPOConfig(importance_sampling_level='sequence', loss_type='grpo')",
    pitfalls="With TRL's default loss type, 'dapo', it is a token mean, and long rows pull more.",
    aggregator=MEAN,
)

gmpo = variant(
    by_loss.gmpo,
    about="GMPO as TRL computes it: rows without tokens are counted.",
    source="trl 1.16.0, experimental.gmpo",
    pitfalls="TRL also adds −Â for each row without tokens: a constant, which moves the loss and no gradient.",
    aggregator=MEAN,
)

cispo = variant(
    table.cispo,
    about="CISPO as TRL computes it: the cap is 5, and there is no lower bound.",
    source="trl 1.16.0, GRPOConfig(loss_type='cispo', epsilon_high=5.0)",
    pitfalls="TRL's epsilon_high is the cap itself: its 5.0 is our 4.0, which is this row's and the plain row's too. "
    "Left at TRL's default of 0.2 every weight is 0.2.",
    policy_loss={"name": "cispo", "epsilon_high": 4.0},
)

sapo = variant(
    by_loss.sapo,
    about="SAPO as TRL computes it: rows without tokens are counted.",
    source="trl 1.16.0, GRPOConfig(loss_type='sapo')",
    aggregator=MEAN,
)

gfpo = variant(
    by_advantage.gfpo,
    about="GFPO as TRL had it: by default without KL and without entropy.",
    source="trl 0.26.0, experimental.gfpo (gone from 1.16)",
    pitfalls="Rows that were left out are in no denominator. The paper's formula keeps them there with advantage 0: "
    "with k of n kept its gradient is about k/n of this.",
    penalties=(),
)

flash_rl = variant(
    by_loss.flash_rl,
    about="TRL's own correction for vLLM: the product of a row's ratios, and rows above 3 are left out.",
    source="trl 1.16.0, vllm_importance_sampling_mode='sequence_mask', vllm_importance_sampling_clip_max=3",
    pitfalls="Not the truncation FlashRL is named for, which is TRL's mode 'token_truncate'. A product over a long "
    "row is rarely near 1: many rows are left out, and the others are weighed with it.",
    token_weights=({"name": "masked_importance", "low": 0.0, "high": 3.0, "level": "sequence"},),
)


def rows() -> dict[str, Algorithm]:
    """Name → row."""
    return {f"{name}@trl": row for name, row in globals().items() if isinstance(row, Algorithm)}
