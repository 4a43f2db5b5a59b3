"""Records of a library that its conventions reproduce, and settings of a record that differ from them.

A row is held to a record as a whole: its scoring half where the record is an advantage, its learning half where it is a
loss, its penalty where it is a KL. What a record sets (ε, β, L) is set in the row; what the library decides has to come
from the row itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rlm_plugins.specs import Algorithm, Spec
from vectors.advantages import OPEN
from vectors.records import RECORDS, Args, Case, matches

Setting = Callable[[Algorithm, Args, Case], Algorithm]
HELD: list[tuple[str, str, Args, Setting]] = []

RECENT = {
    *("max_rl@skyrl", "max_rl@prime_rl", "dppo_tv@verl", "dppo_kl@verl", "dppo_tv@skyrl", "dppo_tv@prime_rl"),
    *("m2po@areal", "topr@roll", "gdpo@verl", "dppo_kl@skyrl", "gkd_top@swift", "gkd_top@verl", "sdft@tinker"),
    *("opd@tinker", "opd@slime", "opd@swift", "opd@nemo", "opd@verl", "opd@prime_rl", "opd@trl"),
}
"""Conventions with records or formulas in `test_recent_algorithms`."""


def holds(names: str, function: str, **args: Any) -> Callable[[Setting], Setting]:
    """Register algorithms (names separated by spaces) that reproduce the library's `function` called with `args`."""

    def enter(setting: Setting) -> Setting:
        HELD.extend((name, function, args, setting) for name in names.split())
        return setting

    return enter


def pairs() -> list[tuple[str, Args, Setting]]:
    """Return every convention with every record that it must reproduce."""
    return [(name, r, setting) for name, function, args, setting in HELD for r in RECORDS if matches(r, function, args)]


def with_knobs(spec: Spec, **knobs: Any) -> Spec:
    """Return the spec of a part with some of its knobs replaced."""
    return {"name": spec, **knobs} if isinstance(spec, str) else {**(spec or {}), **knobs}


def loss(row: Algorithm, **knobs: Any) -> Algorithm:
    """Return the algorithm with other knobs of its policy loss and without penalties, which these records lack."""
    return replace(row, policy_loss=with_knobs(row.policy_loss, **knobs), penalties=())


# ---------------------------------------------------------------- TRL

TRL_GRPO = "GRPOTrainer._generate_and_score_completions[advantage lines]"
TRL_RLOO = "RLOOTrainer._generate_and_score_completions[advantage lines]"
TRL_LOSS = "GRPOTrainer._compute_loss"
ONE_REWARD: Args = {"multi_objective_aggregation": "sum_then_normalize", "row1": None}
BARE: Args = dict.fromkeys(("top_entropy_quantile", "off_policy_mask_threshold", "use_vllm", "beta"))
BY_TOKEN: Args = {**BARE, "importance_sampling_level": None}


@holds(
    "grpo@trl dapo@trl gspo@trl gmpo@trl cispo@trl sapo@trl flash_rl@trl", TRL_GRPO, scale_rewards="group", **ONE_REWARD
)
@holds("dr_grpo@trl", TRL_GRPO, scale_rewards="none", **ONE_REWARD)
@holds("cispo@trl", TRL_LOSS, loss_type="cispo")
@holds("sapo@trl", TRL_LOSS, loss_type="sapo")
@holds("gmpo@trl", "gmpo.GMPOTrainer._compute_loss")
def as_it_is(row: Algorithm, args: Args, case: Case) -> Algorithm:
    return row


@holds("gfpo@trl", "gfpo_trainer[filter + advantage lines]")
def trl_kept(row: Algorithm, args: Args, case: Case) -> Algorithm:
    by = {"shortest": "length", "token_efficiency": "reward_per_token"}[args["metric"]]
    return replace(row, filters=[with_knobs("keep_k", k=args["keep"], by=by)])


@holds("rloo@trl", TRL_RLOO)
def trl_rloo(row: Algorithm, args: Args, case: Case) -> Algorithm:
    scale = "batch" if args["normalize_advantages"] else "none"
    return replace(
        row, shapers=[with_knobs(row.shapers[0], beta=args["beta"])], advantage=with_knobs(row.advantage, scale=scale)
    )


@holds("grpo@trl", TRL_LOSS, loss_type="grpo", **BY_TOKEN)
@holds("dr_grpo@trl", TRL_LOSS, loss_type="dr_grpo", **BY_TOKEN)
@holds("dapo@trl", TRL_LOSS, loss_type="dapo", **BY_TOKEN)
@holds("gspo@trl", TRL_LOSS, loss_type="grpo", **BARE, importance_sampling_level="sequence")
@holds("rloo@trl", "RLOOTrainer._compute_loss")
def trl_clip(row: Algorithm, args: Args, case: Case) -> Algorithm:
    low, high = args.get("epsilon_low", 0.2), args.get("epsilon_high", 0.28)
    return loss(row, epsilon=low, epsilon_high=high, delta=args.get("delta"))


@holds("grpo@trl", TRL_LOSS, loss_type="dapo", beta=0.04, use_bias_correction_kl=True)
def trl_kl(row: Algorithm, args: Args, case: Case) -> Algorithm:
    """Return the algorithm with a token sum, as in the only records with a KL."""
    return replace(row, policy_loss=with_knobs(row.policy_loss, epsilon_high=0.28), aggregator="token_mean")


# ---------------------------------------------------------------- verl

VERL_GRPO = "compute_grpo_outcome_advantage"
VERL_CLIP = "compute_policy_loss_vanilla"
TOKEN_MEAN: Args = {"loss_agg_mode": "token-mean"}
GROUPED = "grpo@verl dapo@verl gspo@verl gmpo@verl cispo@verl clip_cov@verl kl_cov@verl flash_rl@verl"
CLIPPED = "grpo@verl rloo@verl reinforce_pp@verl reinforce_pp_baseline@verl opo@verl pass_at_k@verl"


@holds(GROUPED, VERL_GRPO, norm_adv_by_std_in_grpo=True)
@holds("dr_grpo@verl", VERL_GRPO, norm_adv_by_std_in_grpo=False)
@holds("opo@verl", "compute_opo_outcome_advantage")
@holds("gpg@verl", "compute_gpg_outcome_advantage")
@holds("gpg@verl", "compute_policy_loss_gpg", **TOKEN_MEAN)
@holds("pass_at_k@verl", "compute_grpo_passk_outcome_advantage", norm_adv_by_std_in_grpo=True)
@holds("reinforce_pp_baseline@verl", "compute_reinforce_plus_plus_baseline_outcome_advantage")
@holds("grpo@verl", "core_algos.kl_penalty", kind="k3")
@holds("grpo@verl", "core_algos.kl_penalty", kind="low_var_kl")
def verl_as_it_is(row: Algorithm, args: Args, case: Case) -> Algorithm:
    return row


@holds("rloo@verl", "compute_rloo_outcome_advantage")
def verl_rloo(row: Algorithm, args: Args, case: Case) -> Algorithm:
    return replace(row, shapers=())


@holds("reinforce_pp@verl", "compute_reinforce_plus_plus_outcome_advantage", rewards="rewards")
def verl_to_come(row: Algorithm, args: Args, case: Case) -> Algorithm:
    return replace(row, shapers=(), advantage=with_knobs(row.advantage, gamma=args["gamma"]))


@holds(CLIPPED, VERL_CLIP, clip_ratio_c=3.0, rollout_is=None, **TOKEN_MEAN)
@holds("gspo@verl", "compute_policy_loss_gspo", **TOKEN_MEAN)
def verl_clip(row: Algorithm, args: Args, case: Case) -> Algorithm:
    return loss(row, epsilon=args["clip_low"], epsilon_high=args["clip_high"])


@holds("dapo@verl", VERL_CLIP, clip_ratio_c=3.0, rollout_is=None, **TOKEN_MEAN)
@holds("dapo@verl", VERL_CLIP, clip_ratio_c=1e9, **TOKEN_MEAN)
def verl_dual_clip(row: Algorithm, args: Args, case: Case) -> Algorithm:
    """Return the algorithm with the record's c, since no record has the recipe's 10."""
    return loss(row, epsilon_high=args["clip_high"], delta=args["clip_ratio_c"])


@holds("dr_grpo@verl", VERL_CLIP, loss_agg_mode="seq-mean-token-sum-norm")
def verl_fixed_length(row: Algorithm, args: Args, case: Case) -> Algorithm:
    """Return the algorithm with the padded width as the length."""
    aggregator = with_knobs(row.aggregator, length=case.mask.shape[1])
    return replace(loss(row, epsilon_high=args["clip_high"]), aggregator=aggregator)


@holds("flash_rl@verl", VERL_CLIP, rollout_is="token", threshold=2.0)
@holds("cispo@verl", "compute_policy_loss_cispo", clip_low=0.2, **TOKEN_MEAN)
def verl_high(row: Algorithm, args: Args, case: Case) -> Algorithm:
    return loss(row, epsilon_high=args["clip_high"])


@holds("gmpo@verl", "compute_policy_loss_geo_mean")
def verl_geometric(row: Algorithm, args: Args, case: Case) -> Algorithm:
    return replace(row, importance=with_knobs(row.importance, epsilon=args["clip_low"], epsilon_high=args["clip_high"]))


@holds("clip_cov@verl", "compute_policy_loss_clip_cov")
def verl_clip_cov(row: Algorithm, args: Args, case: Case) -> Algorithm:
    band = {"share": args["clip_cov_ratio"], "low": args["clip_cov_lb"], "high": args["clip_cov_ub"]}
    return replace(row, token_weights=[with_knobs(row.token_weights[0], **band)])


@holds("kl_cov@verl", "compute_policy_loss_kl_cov")
def verl_kl_cov(row: Algorithm, args: Args, case: Case) -> Algorithm:
    cost = with_knobs(row.penalties[0], share=args["kl_cov_ratio"], beta=args["ppo_kl_coef"])
    return replace(row, penalties=[cost])


# ---------------------------------------------------------------- OpenRLHF

OPEN_LOSS = "openrlhf.models.loss.PolicyLoss"
OPEN_KL = "models.utils.compute_approx_kl"
OPEN_CLIPPED = "grpo@openrlhf dr_grpo@openrlhf rloo@openrlhf reinforce_pp@openrlhf reinforce_pp_baseline@openrlhf"


@holds("grpo@openrlhf gspo@openrlhf", OPEN, estimator="group_norm", kl_coef=0.0)
@holds("dr_grpo@openrlhf", OPEN, estimator="dr_grpo", kl_coef=0.0)
@holds("reinforce_pp_baseline@openrlhf", OPEN, estimator="reinforce_baseline", kl_coef=0.0)
@holds("grpo@openrlhf", OPEN_KL, kl_estimator="k3", unbiased_gradient=False)
@holds("reinforce_pp_baseline@openrlhf", OPEN_KL, kl_estimator="k2", unbiased_gradient=False)
def open_as_it_is(row: Algorithm, args: Args, case: Case) -> Algorithm:
    return row


@holds("rloo@openrlhf", OPEN, estimator="rloo", kl_coef=0.0)
def open_rloo(row: Algorithm, args: Args, case: Case) -> Algorithm:
    return replace(row, shapers=())


@holds("reinforce_pp@openrlhf", OPEN, estimator="reinforce")
def open_to_come(row: Algorithm, args: Args, case: Case) -> Algorithm:
    """Return the algorithm with the KL in the reward, where the order of subtraction does not matter."""
    kl = with_knobs(row.shapers[0], beta=args["kl_coef"])
    return replace(row, shapers=[kl], advantage=with_knobs(row.advantage, gamma=args["gamma"]))


@holds(OPEN_CLIPPED, OPEN_LOSS, dual_clip=None, token_level_loss=True)
@holds("gspo@openrlhf", OPEN_LOSS, policy_loss_type="gspo")
def open_clip(row: Algorithm, args: Args, case: Case) -> Algorithm:
    return loss(row, epsilon=args["clip_eps_low"], epsilon_high=args["clip_eps_high"])
