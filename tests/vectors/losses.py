"""Losses, their gradients, KL estimates and critic losses of TRL, verl and OpenRLHF, expressed with our parts."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
from rlm_algorithms import imitation_losses

from rlm_plugins.builtin import advantages as a
from rlm_plugins.builtin import aggregators as z
from rlm_plugins.builtin import importance as w
from rlm_plugins.builtin import penalties as k
from rlm_plugins.builtin import policy_losses as p
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import objective, with_own_step_batch
from rlm_plugins.registry.part import Bound
from vectors.records import Args, Case, Out, part, says


def loss_and_gradient(
    case: Case,
    args: Args,
    aggregator: Bound,
    policy_loss: Bound,
    importance: Any = None,
    penalties: Any = (),
    token_weights: Any = (),
    **more: Any,
) -> Out:
    """Return what the loss phase computes, and its gradient with respect to log π."""
    logp = case.logp.requires_grad_()
    advantages = getattr(case, args.get("advantages", "adv_seq"))
    counts = {
        "num_tokens": case.mask.sum().double(),
        "num_sequences": case.mask.any(1).sum().double(),
        "num_sequences_all": torch.tensor(len(case.groups)).double(),
        "num_micro_batches": torch.tensor(1.0).double(),
        "step": 0,
    }
    batch = case.batch(
        logp=logp, advantages=advantages if advantages.dim() == 2 else advantages.unsqueeze(1), **counts | more
    )
    equation = Equation(
        advantage=part("rlm_advantages", a.group_relative),
        importance=part("rlm_importance", importance) if inspect.isfunction(importance) else importance,
        policy_loss=policy_loss,
        token_weights=token_weights,
        penalties=penalties,
        aggregator=aggregator,
    )
    loss = objective(with_own_step_batch(batch), equation)
    (gradient,) = torch.autograd.grad(loss, logp)
    return {"loss": loss.detach(), "grad_logp": gradient}


def aggregator(function: Any, **knobs: Any) -> Bound:
    return part("rlm_aggregators", function, **knobs)


# ---------------------------------------------------------------- losses: TRL

COUNTED = {"empty_completions": "included"}
"""TRL and verl's geo_mean take rows without tokens into the mean."""
TRL_AGGREGATORS = {
    "grpo": aggregator(z.sequence_mean, **COUNTED),
    "bnpo": aggregator(z.micro_batch_token_mean),
    "dr_grpo": aggregator(z.fixed_length, **COUNTED),
    "dapo": aggregator(z.token_mean),
    "cispo": aggregator(z.token_mean),
    "luspo": aggregator(z.sequence_sum, **COUNTED),
}
TRL_OTHER_LOSSES = ("sapo", "vespo")
TRL_OTHER_WEIGHTS = ("top_entropy_quantile", "off_policy_mask_threshold")


def trl_loss(case: Case, args: Args) -> Out:
    high = args.get("epsilon_high", 0.28)
    if args["loss_type"] == "cispo":
        loss = part("rlm_policy_losses", p.cispo, epsilon_high=high - 1)  # TRL's is the cap itself
    else:
        low = args.get("epsilon_low", 0.2)
        loss = part("rlm_policy_losses", p.clip, epsilon=low, epsilon_high=high, delta=args.get("delta"))
    weighted = args.get("use_bias_correction_kl", False)
    kl = replace(part("rlm_penalties", k.kl, importance_weighted=weighted), options={"beta": args.get("beta", 0.0)})
    more: Args = {}
    if args.get("use_vllm"):
        more["rollout_weight"] = (case.old_logp - case.rollout_logp).exp().clamp(max=2.0)
    level = w.sequence if args.get("importance_sampling_level") == "sequence" else w.token
    return loss_and_gradient(
        case, args, TRL_AGGREGATORS[args["loss_type"]], loss, level, [kl] if kl.beta else (), **more
    )


for name in TRL_AGGREGATORS:
    says(
        "GRPOTrainer._compute_loss",
        loss_type=name,
        **dict.fromkeys(TRL_OTHER_WEIGHTS),
    )(trl_loss)


@says("RLOOTrainer._compute_loss")
def trl_rloo(case: Case, args: Args) -> Out:
    """Return RLOO's loss: the ratio of a completion is a product over its tokens."""
    loss = part("rlm_policy_losses", p.clip, epsilon=args["epsilon_low"], epsilon_high=args["epsilon_high"])
    return with_empty_rows(
        case, args, loss_and_gradient(case, args, aggregator(z.sequence_mean, **COUNTED), loss, w.sequence_sum)
    )


def with_empty_rows(case: Case, args: Args, found: Out) -> Out:
    """Add TRL's constant −Âᵢ of each completion without tokens, whose ratio is 1."""
    empty = ~case.mask.any(1)
    return found | {"loss": found["loss"] - getattr(case, args["advantages"])[empty].sum() / len(empty)}


@says("sft_trainer[dft lines]")
def trl_dft(case: Case, args: Args) -> Out:
    """Return DFT's loss, the penalty `nll` weighted by probability, on completions of another source."""
    term = part("rlm_penalties", imitation_losses.nll, weighted_by="probability")
    own = replace(part("rlm_policy_losses", p.reinforce), options={"source": "policy"})
    more = {"rewards": case.scores, "sources": {"policy": torch.zeros(len(case.groups), dtype=torch.bool)}}
    return loss_and_gradient(case, args, aggregator(z.token_mean), own, penalties=[term], **more)


# ---------------------------------------------------------------- losses: verl


def verl_aggregator(case: Case, args: Args) -> Bound:
    width = case.mask.shape[1]  # verl's default L is the padded width; ours is a constant, so it is handed over here
    return {
        "token-mean": aggregator(z.token_mean),
        "seq-mean-token-mean": aggregator(z.sequence_mean),
        "seq-mean-token-sum": aggregator(z.sequence_sum),
        "seq-mean-token-sum-norm": aggregator(z.fixed_length, length=args.get("loss_scale_factor", width)),
    }[args["loss_agg_mode"]]


@says("compute_policy_loss_vanilla")
def verl_clip(case: Case, args: Args) -> Out:
    """Return verl's clipped loss, whose dual clip is `delta`; c = 1e9 disables it."""
    loss = part(
        "rlm_policy_losses",
        p.clip,
        epsilon=args["clip_low"],
        epsilon_high=args["clip_high"],
        delta=args["clip_ratio_c"],
    )
    more = {"rollout_weight": rollout_weight(case, args["threshold"])} if "rollout_is" in args else {}
    return loss_and_gradient(case, args, verl_aggregator(case, args), loss, w.token, **more)


def rollout_weight(case: Case, threshold: float | str) -> torch.Tensor:
    """Return verl's correction for the inference engine: the ratio capped, or zero outside a band."""
    weight = (case.old_logp - case.rollout_logp).exp()
    if not isinstance(threshold, str):
        return weight.clamp(max=threshold)
    low, high = map(float, threshold.split("_"))
    return weight.where((weight >= low) & (weight <= high), 0.0)


@says("compute_policy_loss_gspo")
def verl_gspo(case: Case, args: Args) -> Out:
    """Return GSPO's loss. verl has the token form; with one advantage per completion its gradient is equal."""
    loss = part("rlm_policy_losses", p.clip, epsilon=args["clip_low"], epsilon_high=args["clip_high"])
    return loss_and_gradient(case, args, verl_aggregator(case, args), loss, w.sequence)


@says("compute_policy_loss_cispo")
def verl_cispo(case: Case, args: Args) -> Out:
    loss = part("rlm_policy_losses", p.cispo, epsilon_low=args["clip_low"], epsilon_high=args["clip_high"])
    return loss_and_gradient(case, args, verl_aggregator(case, args), loss, w.token)


@says("compute_policy_loss_gpg")
def verl_gpg(case: Case, args: Args) -> Out:
    return loss_and_gradient(case, args, verl_aggregator(case, args), part("rlm_policy_losses", p.reinforce))


@says("core_algos.agg_loss", loss_agg_mode="token-mean")
@says("core_algos.agg_loss", loss_agg_mode="seq-mean-token-mean")
@says("core_algos.agg_loss", loss_agg_mode="seq-mean-token-sum")
@says("core_algos.agg_loss", loss_agg_mode="seq-mean-token-sum-norm")
def verl_aggregate(case: Case, args: Args) -> Out:
    tokens, rows = case.mask.sum().double(), case.mask.any(1).sum().double()
    batch = case.batch(loss=getattr(case, args["loss_mat"]), num_tokens=tokens, num_sequences=rows)
    return {"loss": verl_aggregator(case, args)(batch)}


def _kl(logp: torch.Tensor, ref: torch.Tensor, estimator: Any, bound: float | None) -> Out:
    logp = logp.requires_grad_()
    kl = k.kl(logp, ref, estimator=estimator, bound=bound)
    return {"kl": kl.detach(), "grad_logp": torch.autograd.grad(kl.sum(), logp)[0]}


@says("core_algos.kl_penalty", kind="k1")
@says("core_algos.kl_penalty", kind="k2")
@says("core_algos.kl_penalty", kind="k3")
@says("core_algos.kl_penalty", kind="low_var_kl")
def verl_kl(case: Case, args: Args) -> Out:
    """Return verl's KL estimator: k3 is clamped at 10, its log-ratio at 20 before."""
    inline = [torch.tensor(args[name], dtype=torch.float64) for name in ("logp", "ref") if name in args]
    logp, ref = inline or (case.logp, case.ref_logp)
    kind = "k3" if args["kind"] == "low_var_kl" else args["kind"]
    return _kl(logp, ref, kind, bound=10.0 if kind == "k3" else None)


# ---------------------------------------------------------------- losses: OpenRLHF


@says("openrlhf.models.loss.PolicyLoss")
def open_loss(case: Case, args: Args) -> Out:
    loss = part(
        "rlm_policy_losses",
        p.clip,
        epsilon=args["clip_eps_low"],
        epsilon_high=args["clip_eps_high"],
        delta=args.get("dual_clip"),
    )
    more = {}
    if "is_correction_mode" in args:
        low, high = args["is_correction_threshold"]
        more["rollout_weight"] = rollout_weight(case, high if args["is_correction_mode"] == "clip" else f"{low}_{high}")
    gspo = args.get("policy_loss_type") == "gspo"
    rows = gspo or not args.get("token_level_loss", True)
    agg = aggregator(z.sequence_mean if rows else z.token_mean)
    return loss_and_gradient(case, args, agg, loss, w.sequence if gspo else w.token, **more)


@says("models.utils.compute_approx_kl", unbiased_gradient=False)
def open_kl(case: Case, args: Args) -> Out:
    """Return OpenRLHF's KL estimator, clamped at ±10."""
    return _kl(case.logp, case.ref_logp, args["kl_estimator"], bound=10.0)


def summed(case: Case, args: Args, clip: float | None, average: object) -> Out:
    """Return the loss, and the fraction of clipped tokens."""
    logged = {}
    loss = k.value_loss(case.vpreds, case.values, case.returns, lambda name, x: logged.update({name: x}), epsilon=clip)
    rows = case.mask.any(1).sum().double()
    found = average(
        case.batch(loss=loss.where(case.mask, 0.0), num_tokens=case.mask.sum().double(), num_sequences=rows)
    )
    return {"loss": found, **{name: x[case.mask].mean() for name, x in logged.items()}}


@says("compute_value_loss")
def verl_value_loss(case: Case, args: Args) -> Out:
    found = summed(case, args, args["cliprange_value"], verl_aggregator(case, args))
    return found | {"clipfrac": found["value_clipped"]}


@says("openrlhf.models.loss.ValueLoss")
def open_value_loss(case: Case, args: Args) -> Out:
    mean = z.token_mean if args["token_level_loss"] else z.sequence_mean
    return summed(case, args, args["clip_eps"], aggregator(mean))
