"""verl 0.9.1's numbers. (Offered by `conventions`.)

eps is 1e-6, a group of one keeps its reward, dual clip is on wherever PPO's loss is (c = 3), and the sum is a token
mean until `loss_agg_mode` says otherwise. Its log-ratios are clamped at ±20 like ours, in gspo at +10 before `exp`, and
in geo_mean, clip_cov and kl_cov nowhere.
"""

from __future__ import annotations

from rlm_plugins.algorithm import Algorithm, variant, with_knobs
from rlm_plugins.builtin import algorithms as table
from rlm_plugins.builtin import algorithms_by_advantage as by_advantage

GROUP = {"name": "group_relative", "eps": 1e-6, "singleton": "reward"}
DUAL_CLIP = {"name": "clip", "epsilon": 0.2, "delta": 3.0}

grpo = variant(
    table.grpo,
    about="GRPO as verl computes it: eps 1e-6, dual clip, a token mean, k3 bounded at 10.",
    source="verl 0.9.1, adv_estimator=grpo, use_kl_loss=true, kl_loss_type=low_var_kl",
    pitfalls="The paper's mean per row is loss_agg_mode=seq-mean-token-mean. use_kl_loss is off by default.",
    advantage=GROUP,
    policy_loss=DUAL_CLIP,
    penalties=({"name": "kl", "bound": 10.0, "beta": 0.04},),
    aggregator="token_mean",
)

dr_grpo = variant(
    table.dr_grpo,
    about="Dr. GRPO as verl's documentation sets it up: dual clip, and L the width that verl pads answers to.",
    source="verl 0.9.1, norm_adv_by_std_in_grpo=false, loss_agg_mode=seq-mean-token-sum-norm",
    pitfalls="L is the padded width, verl's max_response_length; where a batch is cut narrower (dynamic sizes) it "
    "changes with the batch, unless loss_scale_factor is set. Before 0.9 it was a sum over rows: see dr_grpo@roll.",
    advantage={"name": "group_relative", "scale": "none", "singleton": "reward"},
    policy_loss=DUAL_CLIP,
)

dapo = variant(
    table.dapo,
    about="DAPO as verl's recipe computes it: eps 1e-6, dual clip at 10.",
    source="verl-recipe dapo/run_dapo_qwen2.5_32b.sh with verl 0.9.1 (clip_ratio_c=10)",
    pitfalls="The recipe filters on accuracy (metric acc), before the length is punished: give `nonzero_std` the "
    "name of that reward. It keeps groups of one, which `nonzero_std` drops. Outside the recipe c is 3.",
    advantage=GROUP,
    policy_loss=with_knobs(table.dapo.policy_loss, delta=10.0),
)

rloo = variant(
    table.rloo,
    about="RLOO as verl computes it: the advantage of the paper under PPO's loss, ratio, clip and mean per token.",
    source="verl 0.9.1, adv_estimator=rloo",
    pitfalls="(r − mean) · n / (n − 1) is leave one out. Its rloo_vectorized gives a group of one 0.",
    advantage={"name": "leave_one_out", "singleton": "reward"},
    importance="token",
    policy_loss=DUAL_CLIP,
    aggregator="token_mean",
)

reinforce_pp = variant(
    by_advantage.reinforce_pp,
    about="REINFORCE++ as verl computes it: with dual clip; the variance with n − 1, masked tokens stepped over.",
    source="verl 0.9.1, adv_estimator=reinforce_plus_plus",
    policy_loss=DUAL_CLIP,
)

reinforce_pp_baseline = variant(
    by_advantage.reinforce_pp_baseline,
    about="REINFORCE++ with baseline as verl computes it: dual clip; a group of one keeps its reward.",
    source="verl 0.9.1, adv_estimator=reinforce_plus_plus_baseline",
    advantage=with_knobs(by_advantage.reinforce_pp_baseline.advantage, singleton="reward"),
    policy_loss=DUAL_CLIP,
)

opo = variant(
    by_advantage.opo,
    about="OPO as verl computes it: under PPO's loss with dual clip, and a token mean.",
    source="verl 0.9.1, adv_estimator=opo",
    advantage={"name": "optimal_baseline", "singleton": "reward"},
    importance="token",
    policy_loss=DUAL_CLIP,
    aggregator="token_mean",
)

gpg = variant(
    by_advantage.gpg,
    about="GPG as verl computes it: scaled by the rows whose reward is not 0.",
    source="verl 0.9.1, adv_estimator=gpg, loss_mode=gpg",
    pitfalls="verl has an argument alpha and overwrites it. With rewards of ±1 no row counts as idle.",
    advantage={"name": "gpg", "counted": "nonzero_rewards", "singleton": "reward"},
)

pass_at_k = variant(
    by_advantage.pass_at_k,
    about="What verl calls grpo_passk: another estimator, which pays only the best row of a group, with its lead.",
    source="verl 0.9.1, adv_estimator=grpo_passk; arXiv 2503.19595",
    pitfalls="Not Pass@k Training (2508.10751), with which it shares its name: k is the size of the group, two right "
    "rows of it teach nothing, and no wrong row is ever pushed down.",
    advantage="best_margin",
    policy_loss=DUAL_CLIP,
)


def rows() -> dict[str, Algorithm]:
    """Name → row."""
    return {f"{name}@verl": row for name, row in globals().items() if isinstance(row, Algorithm)}
