"""Algorithms that change w, ℓ, c or βΩ in TRL, verl and OpenRLHF, expressed with our parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from rlm_algorithms import entropy_control, importance_ratios

from rlm_plugins.builtin import aggregators as z
from rlm_plugins.builtin import importance as w
from rlm_plugins.builtin import penalties as k
from rlm_plugins.builtin import policy_losses as p
from rlm_plugins.builtin import token_weights as c
from vectors.losses import COUNTED, aggregator, loss_and_gradient, verl_aggregator, with_empty_rows
from vectors.records import Args, Case, Out, part, says

# ---------------------------------------------------------------- ℓ


@says("GRPOTrainer._compute_loss", loss_type="sapo")
def trl_sapo(case: Case, args: Args) -> Out:
    loss = part("rlm_policy_losses", p.sapo)
    return loss_and_gradient(case, args, aggregator(z.sequence_mean, **COUNTED), loss, w.token)


@says("compute_policy_loss_sapo")
def verl_sapo(case: Case, args: Args) -> Out:
    loss = part("rlm_policy_losses", p.sapo, tau_positive=args["tau_pos"], tau_negative=args["tau_neg"])
    return loss_and_gradient(case, args, verl_aggregator(case, args), loss, w.token)


# ---------------------------------------------------------------- w


def geometric(case: Case, args: Args, low: str, high: str) -> Out:
    ratio = part("rlm_importance", importance_ratios.geometric_clipped, epsilon=args[low], epsilon_high=args[high])
    loss = part("rlm_policy_losses", p.unclipped)
    return loss_and_gradient(case, args, aggregator(z.sequence_mean, **COUNTED), loss, ratio)


@says("compute_policy_loss_geo_mean")
def verl_gmpo(case: Case, args: Args) -> Out:
    return geometric(case, args, "clip_low", "clip_high")


@says("gmpo.GMPOTrainer._compute_loss")
def trl_gmpo(case: Case, args: Args) -> Out:
    return with_empty_rows(case, args, geometric(case, args, "epsilon_low", "epsilon_high"))


# ---------------------------------------------------------------- c


@says("GRPOTrainer._compute_loss", top_entropy_quantile=0.2)
def trl_top_entropy(case: Case, args: Args) -> Out:
    loss = part("rlm_policy_losses", p.clip, epsilon=0.2, epsilon_high=args.get("epsilon_high", 0.28))
    weight = part("rlm_token_weights", c.top_entropy, share=args["top_entropy_quantile"])
    return loss_and_gradient(case, args, aggregator(z.token_mean), loss, w.token, token_weights=[weight])


@says("compute_policy_loss_clip_cov")
def verl_clip_cov(case: Case, args: Args) -> Out:
    """Return Clip-Cov's loss; with a share of 1 every token of the band is drawn."""
    clip = {"epsilon": args["clip_low"], "epsilon_high": args["clip_high"]}
    band = {"share": args["clip_cov_ratio"], "low": args["clip_cov_lb"], "high": args["clip_cov_ub"]}
    weight = part("rlm_token_weights", entropy_control.clip_cov, **band, **clip)
    loss = part("rlm_policy_losses", p.clip, **clip)
    return loss_and_gradient(case, args, verl_aggregator(case, args), loss, w.token, token_weights=[weight])


@says("compute_rollout_correction_weights")
def verl_rollout_weights(case: Case, args: Args) -> Out:
    level, threshold = args["rollout_is"], args["threshold"]
    if isinstance(threshold, str):
        low, high = map(float, threshold.split("_"))
        weight = part("rlm_token_weights", importance_ratios.trust_gate, low=low, high=high, level=level)
    else:
        weight = part("rlm_token_weights", importance_ratios.truncated_importance, cap=threshold, level=level)
    return {"weights": weight(case.batch())}


# ---------------------------------------------------------------- βΩ


@says("compute_policy_loss_kl_cov")
def verl_kl_cov(case: Case, args: Args) -> Out:
    cost = replace(
        part("rlm_penalties", entropy_control.kl_cov, share=args["kl_cov_ratio"]), options={"beta": args["ppo_kl_coef"]}
    )
    loss = part("rlm_policy_losses", p.unclipped)
    return loss_and_gradient(case, args, verl_aggregator(case, args), loss, w.token, [cost])


def straight_through(case: Case, estimator: Any, bound: float | None) -> Out:
    logp = case.logp.requires_grad_()
    kl = k.kl(logp, case.ref_logp, estimator=estimator, straight_through=True, bound=bound)
    (gradient,) = torch.autograd.grad(kl.sum(), logp)
    return {"kl": kl.detach(), "grad_logp": gradient}


@says("core_algos.kl_penalty", kind="k1+")
@says("core_algos.kl_penalty", kind="k3+")
def verl_straight_through(case: Case, args: Args) -> Out:
    return straight_through(case, args["kind"][:2], bound=None)


@says("models.utils.compute_approx_kl", unbiased_gradient=True)
def open_straight_through(case: Case, args: Args) -> Out:
    """Return OpenRLHF's estimator: the value is clamped at ±10, the gradient weighted by the ratio."""
    found = straight_through(case, args["kl_estimator"], bound=10.0)
    return found | {"grad_logp": found["grad_logp"] * (case.logp - case.old_logp).exp()}


@says("core_algos.kl_penalty", kind="abs")
def verl_absolute(case: Case, args: Args) -> Out:
    logp = case.logp.requires_grad_()
    kl = k.kl(logp, case.ref_logp, estimator="abs")
    return {"kl": kl.detach(), "grad_logp": torch.autograd.grad(kl.sum(), logp)[0]}
