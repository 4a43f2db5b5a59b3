"""OpenRLHF 0.11.2's numbers. (Offered by `conventions`.)

eps is 1e-9, there is no dual clip until it is set, the sum is a token mean, log-ratios are clamped at ±20 like ours,
and every estimate of the KL at ±10. Its KL in the reward is taken off after rows were compared, token by token; ours,
like the papers', before. (So give the KL as a penalty, its `use_kl_loss`, where rows are compared.)
"""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm, variant
from rlm_plugins.builtin import algorithms as table
from rlm_plugins.builtin import algorithms_by_advantage as by_advantage

GROUP = {"name": "group_relative", "eps": 1e-9}
WHITENED = {"name": "batch_whitened", "unbiased": False, "eps": 0.0, "masked_tokens": "through"}
CLIP = {"name": "clip", "epsilon": 0.2}

grpo = variant(
    table.grpo,
    about="GRPO as OpenRLHF computes it: eps 1e-9, a token mean, k3 bounded at 10.",
    source="openrlhf 0.11.2, estimator group_norm with use_kl_loss, kl_estimator=k3",
    pitfalls="The paper's mean per row takes token_level_loss off. With rewards that are equal but for rounding its "
    "eps makes 0.9 of the noise; ours is 0 there.",
    advantage=GROUP,
    penalties=({"name": "kl", "bound": 10.0, "beta": 0.04},),
    aggregator="token_mean",
)

dr_grpo = variant(
    table.dr_grpo,
    about="Dr. GRPO as OpenRLHF computes it: only the std goes; the sum stays a token mean.",
    source="openrlhf 0.11.2, estimator dr_grpo",
    pitfalls="Half of Dr. GRPO: the constant L that takes the length out is not there.",
    aggregator="token_mean",
)

rloo = variant(
    table.rloo,
    about="RLOO as OpenRLHF computes it: the advantage of the paper under PPO's loss, ratio and clip per token.",
    source="openrlhf 0.11.2, estimator rloo",
    pitfalls="Its KL in the reward is not compared: taken off token by token after the others' mean. Ours is taken off "
    "before, so set its β to 0 (`algorithm.shapers: none`) to have the same numbers.",
    importance="token",
    policy_loss=CLIP,
    aggregator="token_mean",
)

reinforce_pp = variant(
    by_advantage.reinforce_pp,
    about="REINFORCE++ as OpenRLHF computes it: the variance with n, and discounts run through masked tokens.",
    source="openrlhf 0.11.2, estimator reinforce",
    pitfalls="Its variance is clamped at 1e-8, ours has nothing added: the same unless rewards are equal but for "
    "rounding.",
    advantage=WHITENED,
)

reinforce_pp_baseline = variant(
    by_advantage.reinforce_pp_baseline,
    about="REINFORCE++ with baseline as OpenRLHF computes it: the variance with n; k2 bounded at 10.",
    source="openrlhf 0.11.2, estimator reinforce_baseline with use_kl_loss, kl_estimator=k2",
    pitfalls="Without use_kl_loss its KL is taken off token by token after the group's mean.",
    advantage={**WHITENED, "centre_by_group": True},
    penalties=({"name": "kl", "estimator": "k2", "bound": 10.0, "beta": 0.01},),
)

gspo = variant(
    table.gspo,
    about="GSPO as OpenRLHF computes it: the paper's sequence ratio and mean; eps 1e-9.",
    source="openrlhf 0.11.2, policy_loss_type=gspo with estimator group_norm",
    advantage=GROUP,
)


def rows() -> dict[str, Algorithm]:
    """Name → row."""
    return {f"{name}@openrlhf": row for name, row in globals().items() if isinstance(row, Algorithm)}
