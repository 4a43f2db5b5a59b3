"""Variants of verl 0.9.1; registered by `conventions`.

eps is 1e-6, a group of one keeps its reward, dual clip is on wherever PPO's loss is used (c = 3), and the aggregation
is a token mean unless `loss_agg_mode` is set. Its log-ratios are clamped at ±20 like ours, in gspo at +10 before
`exp`, and in geo_mean, clip_cov and kl_cov not at all.
"""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm, variant, with_knobs
from rlm_plugins.builtin.algorithms import ALGORITHMS

GROUP = {"name": "group_relative", "eps": 1e-6, "singleton": "reward"}
DUAL_CLIP = {"name": "clip", "epsilon": 0.2, "delta": 3.0}

grpo = variant(
    ALGORITHMS["grpo"],
    about="GRPO as verl computes it: eps 1e-6, dual clip, a token mean, k3 clamped at 10.",
    source="verl 0.9.1, adv_estimator=grpo, use_kl_loss=true, kl_loss_type=low_var_kl",
    pitfalls="The paper's mean per completion is loss_agg_mode=seq-mean-token-mean. use_kl_loss is off by default.",
    advantage=GROUP,
    policy_loss=DUAL_CLIP,
    penalties=({"name": "kl", "bound": 10.0, "beta": 0.04},),
    aggregator="token_mean",
)

dr_grpo = variant(
    ALGORITHMS["dr_grpo"],
    about="Dr. GRPO as in verl's documentation: dual clip, and L the width to which verl pads completions.",
    source="verl 0.9.1, norm_adv_by_std_in_grpo=false, loss_agg_mode=seq-mean-token-sum-norm",
    pitfalls="L is the padded width, verl's max_response_length; with narrower batches (dynamic sizes) it "
    "changes with the batch, unless loss_scale_factor is set. Before 0.9 it was a sum over sequences: dr_grpo@roll.",
    advantage={"name": "group_relative", "scale": "none", "singleton": "reward"},
    policy_loss=DUAL_CLIP,
)

dapo = variant(
    ALGORITHMS["dapo"],
    about="DAPO as verl's recipe computes it: eps 1e-6, dual clip at 10.",
    source="verl-recipe dapo/run_dapo_qwen2.5_32b.sh with verl 0.9.1 (clip_ratio_c=10)",
    pitfalls="The recipe filters on accuracy (metric acc), before the length penalty: give `nonzero_std` the name of "
    "that reward. It keeps groups of one, which `nonzero_std` drops. Outside the recipe c is 3.",
    advantage=GROUP,
    policy_loss=with_knobs(ALGORITHMS["dapo"].policy_loss, delta=10.0),
)

rloo = variant(
    ALGORITHMS["rloo"],
    about="RLOO as verl computes it: the advantage of the paper under PPO's loss, ratio, clip and mean per token.",
    source="verl 0.9.1, adv_estimator=rloo",
    pitfalls="(r − mean) · n / (n − 1) is leave one out. Its rloo_vectorized gives a group of one 0.",
    advantage={"name": "leave_one_out", "singleton": "reward"},
    importance="token",
    policy_loss=DUAL_CLIP,
    aggregator="token_mean",
)

reinforce_pp = variant(
    ALGORITHMS["reinforce_pp"],
    about="REINFORCE++ as verl computes it: with dual clip; the variance with n − 1, masked tokens skipped.",
    source="verl 0.9.1, adv_estimator=reinforce_plus_plus",
    policy_loss=DUAL_CLIP,
)

reinforce_pp_baseline = variant(
    ALGORITHMS["reinforce_pp_baseline"],
    about="REINFORCE++ with baseline as verl computes it: dual clip; a group of one keeps its reward.",
    source="verl 0.9.1, adv_estimator=reinforce_plus_plus_baseline",
    advantage=with_knobs(ALGORITHMS["reinforce_pp_baseline"].advantage, singleton="reward"),
    policy_loss=DUAL_CLIP,
)

opo = variant(
    ALGORITHMS["opo"],
    about="OPO as verl computes it: under PPO's loss with dual clip, and a token mean.",
    source="verl 0.9.1, adv_estimator=opo",
    advantage={"name": "optimal_baseline", "singleton": "reward"},
    importance="token",
    policy_loss=DUAL_CLIP,
    aggregator="token_mean",
)

gpg = variant(
    ALGORITHMS["gpg"],
    about="GPG as verl computes it: scaled by the completions whose reward is not 0.",
    source="verl 0.9.1, adv_estimator=gpg, loss_mode=gpg",
    pitfalls="verl has an argument alpha and overwrites it. With rewards of ±1 all completions count, and α is 1.",
    advantage={"name": "gpg", "counted": "nonzero_rewards", "singleton": "reward"},
)

pass_at_k = variant(
    ALGORITHMS["pass_at_k"],
    about="verl's grpo_passk, another estimator: the best completion gets its margin over the second.",
    source="verl 0.9.1, adv_estimator=grpo_passk; arXiv 2503.19595",
    pitfalls="Not Pass@k Training (2508.10751), with which it shares its name: k is the size of the group, a group "
    "with two right completions has no gradient, and no advantage is negative.",
    advantage="best_margin",
    policy_loss=DUAL_CLIP,
)


def algorithms() -> dict[str, Algorithm]:
    """Return name → algorithm."""
    return {f"{name}@verl": value for name, value in globals().items() if isinstance(value, Algorithm)}
