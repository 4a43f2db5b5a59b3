"""Parts with a teacher: on-policy distillation, and a teacher's log-probs as weights and penalties."""

from __future__ import annotations

import math
from typing import Literal

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_algorithms.policy_losses import sampler_logp
from rlm_plugins.builtin.advantages import group_relative
from rlm_plugins.builtin.policy_losses import clip
from rlm_plugins.equation.batch import DivergenceOf, Log
from rlm_plugins.equation.knobs import Share
from rlm_plugins.equation.statistics import discounted
from rlm_plugins.lazy import torch


def teacher_log_ratio(
    teacher_logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    has_teacher: Bool[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    rollout_logp: Float[torch.Tensor, "B T"] | None = None,
    log: Log | None = None,
    *,
    coef: float = 1.0,
    future: Share = 0.0,
    position: NonNegativeFloat = 0.0,
    sampled_by: Literal["engine", "old"] = "old",
) -> Float[torch.Tensor, "B T"]:
    """Sampled reverse KL to a teacher, token by token; no reward. On-policy distillation, Thinking Machines, 2025.

    Âₜ = {future 0.0 → coef · bₜ; else → coef · Σₗ (future)ˡ bₜ₊ₗ}, with bₜ = {position 0.0 → aₜ; else → aₜ (1 +
    position (1 − Σₛ<ₜ |aₛ| / (Σₜ |aₜ| + 1e-8)))} and aₜ = log π_T − {sampled_by engine → log π_rollout; old → log
    π_old}. `future` is tinker's `kl_discount_factor`, `position` that of IW-OPD, arXiv 2606.22600. Libraries disagree
    on π: tinker has the sampler's (`sampled_by` "engine"), slime and ms-swift the old one, verl, prime-rl and TRL the
    current one (`sampled_distillation`). Without a teacher: 0.

    >>> one = torch.ones(1, 2, dtype=torch.bool)
    >>> teacher_log_ratio(torch.tensor([[-1.0, -3.0]]), torch.tensor([[-2.0, -2.0]]), one[:, 0], one).tolist()
    [[1.0, -1.0]]
    """
    scored = has_teacher.unsqueeze(1) & mask
    behavior = old_logp if sampled_by == "old" else sampler_logp(old_logp, rollout_logp)
    gap = (teacher_logp - behavior).where(scored, 0.0)
    if log is not None and scored.any():
        log("reverse_kl", -gap[scored].mean())
    if position:
        size = gap.abs()
        earlier = size.cumsum(1) - size
        gap = gap * (1 + position * (1 - earlier / (size.sum(1, keepdim=True) + 1e-8)))
    return coef * (discounted(gap, future, mask) if future else gap)


def teacher_and_group(
    rewards: Float[torch.Tensor, "B"],
    group: Int[torch.Tensor, "B"],
    teacher_logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    has_teacher: Bool[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    log: Log | None = None,
    *,
    coef: float = 1.0,
) -> Float[torch.Tensor, "B T"]:
    """Reward standardized within its group, plus coef · (log π_T − log π_old): a teacher beside the task.

    Âₜ = (r − mean_g r) / (std_g r + 1e-4) + coef · (log π_T − log π_old). slime, miles (`opd_kl_coef`) and ms-swift
    (`teacher_kl_coef`), all 1. All rewards of a group equal: the teacher alone decides.

    >>> one = torch.ones(2, 1, dtype=torch.bool)
    >>> teacher, zero = torch.full((2, 1), -1.0), torch.zeros(2, 1)
    >>> teacher_and_group(torch.ones(2), torch.zeros(2).long(), teacher, zero, one[:, 0], one).flatten().tolist()
    [-1.0, -1.0]
    """
    of_teacher = teacher_log_ratio(teacher_logp, old_logp, has_teacher, mask, log=log, coef=coef)
    return group_relative(rewards, group).unsqueeze(1) + of_teacher


def sampled_distillation(
    logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    teacher_logp: Float[torch.Tensor, "B T"],
    has_teacher: Bool[torch.Tensor, "B"],
    rollout_logp: Float[torch.Tensor, "B T"] | None = None,
    log: Log | None = None,
    *,
    cap: PositiveFloat | None = None,
    sampled_by: Literal["engine", "old"] = "old",
    fall: NonNegativeFloat | None = None,
) -> Float[torch.Tensor, "B T"]:
    """Sampled reverse KL to a teacher at this policy: its log-ratio is the advantage.

    ℓ = −sg(v (log π_T − log π)) · log π, with v = {fall null → c; else → 0 where μ − π > fall, else c}, c = {cap null →
    1; else → min(π/μ, cap)} and μ = {sampled_by engine → π_rollout; old → π_old}. TRL 1.16's self-distillation
    (`sampled_token`, SDPO, arXiv 2601.20802), with the ratio w capped at `cap` (`distillation_is_clip`; default: no
    ratio). The advantage is not read. A loss log π − log π_T itself has a gradient without the teacher (AReaL's joint
    loss); so the difference is a constant here. No teacher: 0. `sampled_by` "engine" is prime-rl's, where the engine
    reports log-probs. `fall` is 0.2 in prime-rl.
    """
    gap = (teacher_logp - logp).detach() * has_teacher.unsqueeze(1)
    if log is not None:
        log("reverse_kl", -gap)
    behavior = old_logp if sampled_by == "old" else sampler_logp(old_logp, rollout_logp)
    weight = torch.ones_like(gap) if cap is None else (logp - behavior).detach().clamp(-20.0, 20.0).exp().clamp(max=cap)
    if fall is not None:
        weight = weight.where(behavior.exp() - logp.detach().exp() <= fall, 0.0)
    return -weight * gap * logp


def clipped_distillation(
    ratio: Float[torch.Tensor, "B #T"],
    logp: Float[torch.Tensor, "B T"],
    teacher_logp: Float[torch.Tensor, "B T"],
    has_teacher: Bool[torch.Tensor, "B"],
    log: Log | None = None,
    *,
    epsilon: NonNegativeFloat = 0.2,
    delta: PositiveFloat | None = 3.0,
    bound: PositiveFloat | None = None,
) -> Float[torch.Tensor, "B T"]:
    """Sampled reverse KL to a teacher in a trust region: PPO's clip, with its log-ratio as the advantage.

    ℓ = −min({delta null → w; else → min(w, δ)} a, clip(w, 1−ε, 1+ε) a), with a = sg(clip(log π_T − log π, −bound,
    bound)). verl 0.9.1, `distillation.loss_mode=k1` with `use_policy_gradient`, whose dual clip has `delta` 3; `bound`
    (default: `∞`) is 10 in its dataclass. The advantage is not read. No teacher: 0.

    >>> half, one = torch.tensor([[0.5]]).log(), torch.ones(1, dtype=torch.bool)
    >>> round(clipped_distillation(torch.tensor([[1.5]]), half, torch.zeros(1, 1), one).item(), 4)  # −1.2 log 2
    -0.8318
    """
    limit = math.inf if bound is None else bound
    gap = (teacher_logp - logp).detach().clamp(-limit, limit) * has_teacher.unsqueeze(1)
    return clip(ratio, gap, log, epsilon=epsilon, delta=delta)


def divergence(
    divergence_of: DivergenceOf,
    logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    has_teacher: Bool[torch.Tensor, "B"],
    log: Log | None = None,
    *,
    beta: Share = 1.0,
    cap: PositiveFloat | None = None,
) -> Float[torch.Tensor, "B T"]:
    """ℓ = {cap null → 1; else → min(w, cap)} · D_β(π_T, π): their divergence over the whole vocabulary.

    D is KL(π_T ‖ π) at β = 0, KL(π ‖ π_T) at β = 1, else β KL(π_T ‖ M) + (1 − β) KL(π ‖ M), M = (1 − β) π + β π_T. GKD,
    arXiv 2306.13649, with TRL 1.16's β (older releases of TRL have the other order). Its gradient has no noise of the
    token that was drawn. `cap` (default: no ratio) bounds the ratio w to the policy that sampled. The advantage is not
    read. No teacher: 0.
    """
    return _weighted(divergence_of(beta), logp, old_logp, has_teacher, log, cap)


def top_divergence(
    top_logp: Float[torch.Tensor, "B T K"],
    teacher_top_logp: Float[torch.Tensor, "B T K"],
    logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    has_teacher: Bool[torch.Tensor, "B"],
    log: Log | None = None,
    *,
    beta: Share = 1.0,
    rest: Literal["tail", "renormalize", "ignore"] = "tail",
    cap: PositiveFloat | None = None,
) -> Float[torch.Tensor, "B T"]:
    """ℓ = {cap null → 1; else → min(w, cap)} · D_β(π_T, π): over the K tokens that `teacher: {top: …}` selects.

    The formula is that of `divergence`. `rest` says what becomes of the other tokens: one more token with their
    probability ("tail", a lower bound of the whole divergence), both distributions divided by their sum ("renormalize":
    TRL, ms-swift), or nothing ("ignore": verl, whose sum may be negative). No teacher: 0.

    >>> half = torch.tensor([[[0.5, 0.25]]]).log()
    >>> zero, one = torch.zeros(1, 1), torch.tensor([True])
    >>> round(top_divergence(half, half.flip(2), zero, zero, one, beta=0.0).item(), 4)  # ¼ log 2
    0.1733
    """
    policy, teacher = (_with_rest(x, rest) for x in (top_logp, teacher_top_logp))
    return _weighted(_divergence(policy, teacher, beta), logp, old_logp, has_teacher, log, cap)


def _with_rest(logp: Float[torch.Tensor, "B T K"], rest: str) -> Float[torch.Tensor, "B T J"]:
    if rest == "ignore":
        return logp
    total = logp.logsumexp(-1, keepdim=True)
    if rest == "renormalize":
        return logp - total
    return torch.cat([logp, (-total.clamp(max=-1e-7).expm1()).log()], -1)


def _divergence(
    logp: Float[torch.Tensor, "B T K"], teacher: Float[torch.Tensor, "B T K"], beta: float
) -> Float[torch.Tensor, "B T"]:
    """Return D_β of distributions in log space."""
    if beta == 0:
        return (teacher.exp() * (teacher - logp)).sum(-1)
    if beta == 1:
        return (logp.exp() * (logp - teacher)).sum(-1)
    mixture = torch.logaddexp(logp + math.log(1 - beta), teacher + math.log(beta))
    of_teacher, of_policy = teacher.exp() * (teacher - mixture), logp.exp() * (logp - mixture)
    return (beta * of_teacher + (1 - beta) * of_policy).sum(-1)


def _weighted(
    loss: torch.Tensor,
    logp: torch.Tensor,
    old_logp: torch.Tensor,
    has_teacher: torch.Tensor,
    log: Log | None,
    cap: float | None,
) -> torch.Tensor:
    """Return a loss (B, T) times min(w, cap), without gradient in w; 0 without a teacher."""
    loss = loss * has_teacher.unsqueeze(1)
    if log is not None:
        log("divergence", loss.detach())
    return loss if cap is None else (logp - old_logp).detach().exp().clamp(max=cap) * loss


def teacher_reweighting(
    advantages: Float[torch.Tensor, "B #T"],
    teacher_logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    has_teacher: Bool[torch.Tensor, "B"],
    *,
    mix: Share = 0.5,
    epsilon: NonNegativeFloat = 0.2,
    negative_only: bool = False,
) -> Float[torch.Tensor, "B T"]:
    """Weight of a token by how much a teacher prefers it, in the direction of its advantage (RLSD).

    c = {negative_only true → a where Â < 0, else 1; false → a}, with a = 1 − mix + mix · clip(exp(sign(Â) (log π_T −
    log π_old)), 1−ε, 1+ε). RLSD, arXiv 2604.03128. There `mix` is a schedule. No teacher: 1.
    """
    gap = advantages.sign() * (teacher_logp - old_logp)
    weight = 1 - mix + mix * gap.exp().clamp(1 - epsilon, 1 + epsilon)
    applies = has_teacher.unsqueeze(1)
    return weight.where(applies & (advantages < 0) if negative_only else applies, 1.0)


def self_distillation(
    logp: Float[torch.Tensor, "B T"],
    teacher_logp: Float[torch.Tensor, "B T"],
    has_teacher: Bool[torch.Tensor, "B"],
    *,
    sharpness: NonNegativeFloat = 5.0,
) -> Float[torch.Tensor, "B T"]:
    """Ω = sg(σ(sharpness · Δ)) · Δ, with Δ = log π_T − log π: pulls up tokens that the teacher prefers.

    SDAR, arXiv 2605.15155, k is `sharpness`; the paper's coefficient is 0.1, in its ALFWorld 0.01. Its mean is over its
    own tokens: `aggregator: token_mean`. No teacher: 0.
    """
    gap = (teacher_logp - logp) * has_teacher.unsqueeze(1)
    return (sharpness * gap.detach()).sigmoid() * gap
