"""Variants of OpenRLHF 0.11.2; registered by `conventions`.

eps is 1e-9, dual clip is off by default, the aggregation is a token mean, log-ratios are clamped at ±20 like ours,
and every KL estimate at ±10. Its KL in the reward is subtracted per token after completions are compared; ours, like
the papers', before. (So use the KL as a penalty, its `use_kl_loss`, where completions are compared.)
"""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm, variant
from rlm_plugins.builtin.algorithms import ALGORITHMS

GROUP = {"name": "group_relative", "eps": 1e-9}
WHITENED = {"name": "batch_whitened", "unbiased": False, "eps": 0.0, "masked_tokens": "discount"}
CLIP = {"name": "clip", "epsilon": 0.2}

grpo = variant(
    ALGORITHMS["grpo"],
    about="GRPO as OpenRLHF computes it: eps 1e-9, a token mean, k3 clamped at 10.",
    source="openrlhf 0.11.2, estimator group_norm with use_kl_loss, kl_estimator=k3",
    pitfalls="The paper's mean per completion requires token_level_loss=false. With rewards that are equal but for "
    "rounding, its eps turns the noise into advantages of 0.9; ours are 0.",
    advantage=GROUP,
    penalties=({"name": "kl", "bound": 10.0, "beta": 0.04},),
    aggregator="token_mean",
)

dr_grpo = variant(
    ALGORITHMS["dr_grpo"],
    about="Dr. GRPO as OpenRLHF computes it: without the std, but with a token mean.",
    source="openrlhf 0.11.2, estimator dr_grpo",
    pitfalls="Half of Dr. GRPO: the constant L that removes the effect of the length is missing.",
    aggregator="token_mean",
)

rloo = variant(
    ALGORITHMS["rloo"],
    about="RLOO as OpenRLHF computes it: the advantage of the paper under PPO's loss, ratio and clip per token.",
    source="openrlhf 0.11.2, estimator rloo",
    pitfalls="Its KL in the reward is subtracted per token after the leave-one-out mean. Ours is subtracted before, so "
    "set its β to 0 (`algorithm.shapers: none`) for equal numbers.",
    importance="token",
    policy_loss=CLIP,
    aggregator="token_mean",
)

reinforce_pp = variant(
    ALGORITHMS["reinforce_pp"],
    about="REINFORCE++ as OpenRLHF computes it: the variance with n, and masked tokens discount.",
    source="openrlhf 0.11.2, estimator reinforce",
    pitfalls="Its variance is clamped at 1e-8, ours is unchanged: equal unless rewards are equal but for rounding.",
    advantage=WHITENED,
)

reinforce_pp_baseline = variant(
    ALGORITHMS["reinforce_pp_baseline"],
    about="REINFORCE++ with baseline as OpenRLHF computes it: the variance with n; k2 clamped at 10.",
    source="openrlhf 0.11.2, estimator reinforce_baseline with use_kl_loss, kl_estimator=k2",
    pitfalls="Without use_kl_loss its KL is subtracted per token after the group's mean.",
    advantage={**WHITENED, "center_by_group": True},
    penalties=({"name": "kl", "estimator": "k2", "bound": 10.0, "beta": 0.01},),
)

gspo = variant(
    ALGORITHMS["gspo"],
    about="GSPO as OpenRLHF computes it: the paper's sequence ratio and mean; eps 1e-9.",
    source="openrlhf 0.11.2, policy_loss_type=gspo with estimator group_norm",
    advantage=GROUP,
)


def algorithms() -> dict[str, Algorithm]:
    """Return name → algorithm."""
    return {f"{name}@openrlhf": value for name, value in globals().items() if isinstance(value, Algorithm)}
