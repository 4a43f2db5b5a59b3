"""Advantages and shaped rewards of TRL, verl and OpenRLHF, expressed with our parts."""

from __future__ import annotations

from typing import Any

import torch
from rlm_algorithms import filters, group_advantages

from rlm_plugins.builtin import advantages as a
from rlm_plugins.builtin import aggregators as z
from rlm_plugins.builtin import policy_losses as p
from rlm_plugins.builtin import shapers as s
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.statistics import discounted, whiten
from rlm_plugins.equation.step import score
from vectors.records import RECORDS, Args, Case, Out, part, says


def scored(
    case: Case, rewards: torch.Tensor, advantage: Any, shapers: Any = (), filters: Any = (), **knobs: Any
) -> Out:
    """Return what the scoring phase computes from `rewards`."""
    equation = Equation(
        shapers=shapers,
        filters=filters,
        advantage=part("rlm_advantages", advantage, **knobs),
        policy_loss=part("rlm_policy_losses", p.reinforce),
        aggregator=part("rlm_aggregators", z.token_mean),
    )
    batch = score(case.batch(rewards=rewards), equation)
    found = {"advantages": batch.advantages, "reward": batch.token_rewards}
    return found | ({"returns": batch.returns} if batch.returns is not None else {})


# ---------------------------------------------------------------- advantages: TRL

GRPO = "GRPOTrainer._generate_and_score_completions[advantage lines]"


@says(GRPO, multi_objective_aggregation="sum_then_normalize")
def trl_advantages(case: Case, args: Args) -> Out:
    rewards = case.scores
    if "row1" in args:
        rewards[1] = torch.nan
    return scored(case, rewards, a.group_relative, scale=args["scale_rewards"])


@says("RLOOTrainer._generate_and_score_completions[advantage lines]")
def trl_rloo(case: Case, args: Args) -> Out:
    scale = "batch" if args["normalize_advantages"] else "none"
    shapers = [part("rlm_shapers", s.kl_in_reward, beta=args["beta"])]
    return scored(case, case.scores, a.leave_one_out, shapers=shapers, scale=scale)


@says(GRPO, multi_objective_aggregation="normalize_then_sum")
def trl_gdpo(case: Case, args: Args) -> Out:
    names, weights = args["rewards"].split(","), map(float, args["weights"].split(","))
    rewards = {name: getattr(case, name) for name in names}
    knobs = {"weights": dict(zip(names, weights, strict=True))}
    return {"advantages": a.per_reward(rewards, case.groups, case.mask, **knobs)}


@says("gfpo_trainer[filter + advantage lines]")
def trl_gfpo(case: Case, args: Args) -> Out:
    """Return GFPO's advantages in the order of the record, the best completion of a group first."""
    by = {"shortest": "length", "token_efficiency": "reward_per_token"}[args["metric"]]
    sieve = part("rlm_filters", filters.keep_k, k=args["keep"], by=by)
    kept = KEPT[case.name, args["metric"]]
    ours = sieve.target(case.scores, case.mask, case.groups, k=args["keep"], by=by)
    assert ours.nonzero().squeeze(1).tolist() == sorted(kept)
    found = scored(case, case.scores, a.group_relative, filters=[sieve])
    return {"advantages": found["advantages"][kept]}


KEPT = {(r["case"], r["args"]["metric"]): r["out"]["kept"] for r in RECORDS if "kept" in r["out"]}


@says("ppo_trainer[GAE lines]")
def trl_gae(case: Case, args: Args) -> Out:
    """Return GAE as in TRL 0.26, where masked tokens discount: its recursion has no mask and padding has value 0."""
    knobs = {"gamma": args["gamma"], "lam": args["lam"], "masked_tokens": "discount"}
    advantages, returns = a.gae(case.dense_rewards, case.values, case.mask, **knobs)
    return {"advantages": advantages, "returns": returns}


@says("get_soft_overlong_punishment")
def trl_overlong(case: Case, args: Args) -> Out:
    return _overlong(case, args["L_max"], args["L_cache"])


def _overlong(case: Case, limit: int, cache: int) -> Out:
    lengths = torch.tensor(LENGTHS)
    mask = torch.arange(int(lengths.max())) < lengths.unsqueeze(1)
    zeros = torch.zeros(len(lengths), dtype=torch.float64)
    return {"reward": s.overlong(zeros, mask, 99, max_length=limit, cache=cache)}


LENGTHS = next(r["out"]["lengths"] for r in RECORDS if "lengths" in r["out"])

# ---------------------------------------------------------------- advantages: verl


@says("compute_gae_advantage_return")
def verl_gae(case: Case, args: Args) -> Out:
    rewards = getattr(case, args["rewards"])
    advantages, returns = a.gae(rewards, case.values, case.mask, gamma=args["gamma"], lam=args["lam"])
    return {"advantages": advantages, "returns": returns}


@says("compute_grpo_outcome_advantage")
@says("compute_grpo_vectorized_outcome_advantage")
def verl_grpo(case: Case, args: Args) -> Out:
    scale = "group" if args["norm_adv_by_std_in_grpo"] else "none"
    return scored(case, case.outcome, a.group_relative, scale=scale, eps=1e-6)


@says("compute_rloo_outcome_advantage")
@says("compute_rloo_vectorized_outcome_advantage")
def verl_rloo(case: Case, args: Args) -> Out:
    return scored(case, case.outcome, a.leave_one_out)


@says("compute_reinforce_plus_plus_baseline_outcome_advantage")
def verl_reinforce_baseline(case: Case, args: Args) -> Out:
    return scored(case, case.outcome, group_advantages.batch_whitened, center_by_group=True)


@says("compute_reinforce_plus_plus_outcome_advantage")
def verl_reinforce(case: Case, args: Args) -> Out:
    rewards, gamma = getattr(case, args["rewards"]), args["gamma"]
    advantages = group_advantages.batch_whitened(rewards.sum(1), rewards, case.groups, case.mask, gamma=gamma)
    return {"advantages": advantages, "returns": discounted(rewards, gamma, case.mask)}


@says("compute_opo_outcome_advantage")
def verl_opo(case: Case, args: Args) -> Out:
    return scored(case, case.outcome, group_advantages.optimal_baseline)


@says("compute_gpg_outcome_advantage")
def verl_gpg(case: Case, args: Args) -> Out:
    return scored(case, case.outcome, group_advantages.gpg, counted="nonzero_rewards")


@says("compute_grpo_passk_outcome_advantage")
def verl_passk(case: Case, args: Args) -> Out:
    return scored(
        case, case.outcome, group_advantages.best_margin, scale="group" if args["norm_adv_by_std_in_grpo"] else "none"
    )


@says("compute_remax_outcome_advantage")
def verl_remax(case: Case, args: Args) -> Out:
    """Return ReMax's advantages, with a greedy completion per completion, as in verl's arguments."""
    rewards, n = getattr(case, args["rewards"]), len(case.groups)
    greedy = torch.arange(2 * n) >= n
    dense = torch.cat([rewards, torch.zeros_like(rewards)])
    mask = torch.cat([case.mask, torch.zeros_like(case.mask)])
    scores = torch.cat([(rewards * case.mask).sum(1), case.greedy_scores])
    group = torch.arange(n).repeat(2)
    advantages = group_advantages.greedy_baseline(scores, dense, group, mask, {"greedy": greedy})[:n]
    return {"advantages": advantages, "returns": discounted(rewards, 1.0, case.mask)}


@says("compute_gdpo_outcome_advantage")
def verl_gdpo(case: Case, args: Args) -> Out:
    """Return GDPO's advantages for one reward, standardized over tokens as in verl."""
    knobs = {"over": "tokens", "eps": 1e-6, "singleton": "reward"}
    return {"advantages": a.per_reward({"score": case.outcome}, case.groups, case.mask, **knobs)}


@says("torch_functional.masked_whiten")
def verl_whiten(case: Case, args: Args) -> Out:
    return {"out": whiten(case.values, case.mask)}


# ---------------------------------------------------------------- advantages: OpenRLHF

OPEN = "RemoteExperienceMaker.compute_advantages_and_returns"


def population_whitened(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Whiten as OpenRLHF: without Bessel's correction, the variance clamped at 1e-8."""
    live = x[mask]
    return (x - live.mean()) * live.var(correction=0).clamp(min=1e-8).rsqrt()


def with_kl(case: Case, rewards: torch.Tensor, kl_coef: float) -> torch.Tensor:
    """Return the token rewards after the shaper `kl_in_reward`."""
    shaper = part("rlm_shapers", s.kl_in_reward, beta=kl_coef)
    return scored(case, rewards, a.leave_one_out, shapers=[shaper])["reward"]


@says(OPEN, estimator="gae")
def open_gae(case: Case, args: Args) -> Out:
    rewards = with_kl(case, case.scores, args["kl_coef"])
    knobs = {"gamma": args["gamma"], "lam": args["lambd"], "masked_tokens": "discount", "whitened": False}
    advantages, returns = a.gae(rewards, case.values, case.mask, **knobs)
    return {"advantages": population_whitened(advantages, case.mask), "returns": returns}


def _to_come(case: Case, args: Args, rewards: torch.Tensor) -> torch.Tensor:
    """Return OpenRLHF's returns: baseline first, then the KL, then the sum of later rewards through masked tokens."""
    through = torch.ones_like(case.mask)
    return discounted(with_kl(case, rewards, args["kl_coef"]), args["gamma"], through)


@says(OPEN, estimator="reinforce")
def open_reinforce(case: Case, args: Args) -> Out:
    returns = _to_come(case, args, case.scores)
    return {"advantages": population_whitened(returns, case.mask), "returns": returns}


@says(OPEN, estimator="reinforce_baseline")
def open_reinforce_baseline(case: Case, args: Args) -> Out:
    returns = _to_come(case, args, a.group_relative(case.scores, case.groups, scale="none"))
    return {"advantages": population_whitened(returns, case.mask), "returns": returns}


@says(OPEN, estimator="rloo")
def open_rloo(case: Case, args: Args) -> Out:
    returns = _to_come(case, args, a.leave_one_out(case.scores, case.groups))
    return {"advantages": returns, "returns": returns}


@says(OPEN, estimator="group_norm")
def open_group_norm(case: Case, args: Args) -> Out:
    returns = _to_come(case, args, a.group_relative(case.scores, case.groups, eps=1e-9))
    return {"advantages": returns, "returns": returns}


@says(OPEN, estimator="dr_grpo")
def open_dr_grpo(case: Case, args: Args) -> Out:
    returns = _to_come(case, args, a.group_relative(case.scores, case.groups, scale="none"))
    return {"advantages": returns, "returns": returns}


@says("models.utils.compute_reward")
def open_reward(case: Case, args: Args) -> Out:
    return {"reward": with_kl(case, case.scores, args["kl_coef"])}


@says("length_penalty.apply_overlong_penalty")
def open_overlong(case: Case, args: Args) -> Out:
    return _overlong(case, args["max_new_tokens"], args["buffer"])
