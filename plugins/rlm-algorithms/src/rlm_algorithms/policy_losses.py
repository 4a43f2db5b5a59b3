"""ℓ: a clip that keeps gradients (GPPO, CE-GPPO), trust regions (DPPO, DRO), truncated weights (TOPR), REAL, FlowRL."""

from __future__ import annotations

import math
from typing import Literal

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_algorithms.imitation_losses import sequence_mean
from rlm_plugins.equation.batch import Batch, Log
from rlm_plugins.equation.statistics import Groups
from rlm_plugins.lazy import torch

EDGE = 1e-6
"""Distance of a probability from 0 and 1 inside a logarithm."""


def sampler_logp(
    old_logp: Float[torch.Tensor, "B T"], rollout_logp: Float[torch.Tensor, "B T"] | None
) -> Float[torch.Tensor, "B T"]:
    """Return log μ: the inference engine's log-probs where it reports them, else those of the old policy."""
    return old_logp if rollout_logp is None else old_logp.where(rollout_logp.isnan(), rollout_logp)


def binary_kl(p: Float[torch.Tensor, "B T"], q: Float[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B T"]:
    """Return KL(p ‖ q) of the two-way choice between the sampled token and all others, in nats.

    >>> half, quarter = torch.tensor([[0.5]]), torch.tensor([[0.25]])
    >>> round(binary_kl(half, quarter).item(), 4)  # ½ log 2 + ½ log ⅔
    0.1438
    """
    p, q = p.clamp(EDGE, 1 - EDGE), q.clamp(EDGE, 1 - EDGE)
    return p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()


def dppo(
    logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    advantages: Float[torch.Tensor, "B #T"],
    rollout_logp: Float[torch.Tensor, "B T"] | None = None,
    log: Log | None = None,
    *,
    divergence: Literal["tv", "kl"] = "tv",
    low: NonNegativeFloat = 0.15,
    high: NonNegativeFloat = 0.15,
    cap: PositiveFloat | None = None,
    sampled_by: Literal["engine", "old"] = "engine",
) -> Float[torch.Tensor, "B T"]:
    """Policy gradient in which a token has no gradient once its probability has moved too far (DPPO).

    ℓ = −sg(v) · Â · log π, with v = 0 where D > high and Â > 0 and π > μ, 0 where D > low and Â < 0 and π < μ, else
    min(π/μ, cap), D = {divergence tv → |π − μ|; kl → μ log(μ/π) + (1 − μ) log((1 − μ)/(1 − π))} and μ = {sampled_by
    engine → π_rollout; old → π_old}: no gradient only where π has moved in the direction of Â. DPPO, arXiv 2602.04879
    eq. 13, 14. PPO's ratio clips rare tokens after tiny changes of probability, and likely ones almost never; D treats
    them alike.

    μ is the inference engine where it reports log-probs, as in the paper's §5.2, or always π_old with the `sampled_by`
    "old" (verl). `cap` (default: `∞`) bounds π/μ, and so does e²⁰. On policy the gradient is REINFORCE's. Â = 0: none.

    >>> old = torch.tensor([[0.5, 0.5]]).log()
    >>> dppo(torch.tensor([[0.6, 0.7]]).log(), old, torch.tensor([[1.0]])).gt(0).tolist()  # 0.7 − 0.5 > 0.15
    [[True, False]]
    """
    behavior = old_logp if sampled_by == "old" else sampler_logp(old_logp, rollout_logp)
    current = logp.detach()
    p, q = current.exp(), behavior.exp()
    distance = (p - q).abs() if divergence == "tv" else binary_kl(q, p)
    outside = ((advantages > 0) & (p > q) & (distance > high)) | ((advantages < 0) & (p < q) & (distance > low))
    if log is not None:
        log("outside", outside.float())
    weight = (current - behavior).clamp(-20.0, 20.0).exp().clamp(max=math.inf if cap is None else cap)
    return -weight.where(~outside, 0.0) * advantages * logp


def dro(
    logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    advantages: Float[torch.Tensor, "B #T"],
    *,
    beta: PositiveFloat,
) -> Float[torch.Tensor, "B T"]:
    """Policy gradient with a squared penalty on the log-ratio in place of a clip.

    ℓ = −(Â log π − β/2 (log π − log π_old)²). verl 0.9.1, `dro`, which has no default for β (its `dro_beta`). The
    square is stationary at log π = log π_old + Â/β. On policy the gradient is REINFORCE's. Â = 0: the penalty remains.

    >>> dro(torch.tensor([[-1.0]]), torch.tensor([[-3.0]]), torch.tensor([[2.0]]), beta=0.5).item()
    3.0
    """
    return -(advantages * logp - beta / 2 * (logp - old_logp) ** 2)


def topr(
    logp: Float[torch.Tensor, "B T"],
    ratio: Float[torch.Tensor, "B #T"],
    advantages: Float[torch.Tensor, "B #T"],
    *,
    positive: NonNegativeFloat = 1.0,
    negative: NonNegativeFloat = 1.0,
) -> Float[torch.Tensor, "B T"]:
    """Policy gradient with a truncated importance weight for negative advantages only (TOPR).

    ℓ = −sg(v) · Â · log π, with v = positive where Â > 0, else negative · min(w, 1). TOPR, arXiv 2503.14286 eq. 8, with
    w of `sequence_sum` and Â = ±1. A good completion is imitated however unlikely it has become; a bad one that the
    policy no longer generates has no gradient, so its log-probability does not fall without bound.

    ROLL decides by the sign of the reward, here that of Â counts. On policy the gradient is REINFORCE's. Â = 0: none.

    >>> logp = torch.tensor([[-1.0], [-1.0]])
    >>> topr(logp, torch.tensor([[0.25], [0.25]]), torch.tensor([[1.0], [-1.0]])).tolist()
    [[1.0], [-0.25]]
    """
    weight = (negative * ratio.detach().clamp(max=1.0)).where(advantages <= 0, positive)
    return -weight * advantages * logp


def real(
    logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    mask: Bool[torch.Tensor, "B T"],
    step_batch: Batch,
    step_batch_rows: Int[torch.Tensor, "B"],
    *,
    tau: PositiveFloat = 0.5,
) -> Float[torch.Tensor, "B 1"]:
    """Contrast of right and wrong completions of a group: rewards are labels, not weights (REAL).

    ℓ = B / (P G) · (log(1 + Σ₋ e^(s/τ)) + log(1 + Σ₊ e^(−s/τ))) where min(Σ₊ 1, Σ₋ 1) > 0, else 0, with s = meanₜ log
    w: Σ₊ is over completions of the group with Â > 0 and Σ₋ over its others, G in all; the step has B in P groups.
    REAL, arXiv 2602.05630; ms-swift 4.6, whose τ is 0.5. Use the aggregator `sequence_mean`: with it the loss is the
    mean over the groups of the step. A completion's gradient is at most 1/τ.

    Sums are those of the complete optimizer step, so a group may be split over micro-batches (ms-swift needs whole
    groups in each). A group with completions of one kind adds 0, and is counted.

    >>> logp, mask = torch.zeros(2, 1, requires_grad=True), torch.ones(2, 1, dtype=torch.bool)
    >>> advantages, group = torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 0])
    >>> step = Batch(logp=logp.detach(), old_logp=logp.detach(), advantages=advantages, mask=mask, group=group)
    >>> loss = real(logp, logp.detach(), mask, step, torch.tensor([0, 1]), tau=1.0)  # log 2 each
    >>> loss.sum().backward()
    >>> round(loss.sum().item(), 4), logp.grad.flatten().tolist()  # the mean over two completions halves them
    (2.7726, [-1.0, 1.0])
    """
    loss, slope = (x[step_batch_rows].unsqueeze(1) for x in _contrast(step_batch, tau))
    score = sequence_mean(logp - old_logp, mask)
    return loss + slope * (score - score.detach())


def _contrast(step: Batch, tau: float) -> tuple[Float[torch.Tensor, "B"], Float[torch.Tensor, "B"]]:
    """Return the share of each completion in the loss of its group, and the derivative of that loss by its score."""
    scores = (sequence_mean(step.logp - step.old_logp, step.mask) / tau).squeeze(1)
    groups = Groups(scores.masked_fill(~step.mask.any(1), torch.nan), step.group)
    right = Groups(sequence_mean(step.advantages, step.mask).squeeze(1), step.group).table > 0
    present = ~groups.table.isnan()
    wrong, right = present & ~right, present & right
    zeros = groups.table.new_zeros(len(groups.table), 1)
    table = groups.table.nan_to_num(nan=0.0)
    below, above = (
        torch.cat([x.masked_fill(~some, -torch.inf), zeros], 1).logsumexp(1, keepdim=True)
        for x, some in ((table, wrong), (-table, right))
    )
    is_mixed = wrong.any(1, keepdim=True) & right.any(1, keepdim=True)
    slope = (table - below).exp().where(wrong, -((-table - above).exp()).where(right, 0.0)) / tau
    size = present.sum(1, keepdim=True).to(table.dtype)
    scale = size.sum() / (size > 0).sum().clamp(min=1)
    loss = (below + above) / size.clamp(min=1)
    return groups.flatten(scale * loss.where(is_mixed, 0.0)), groups.flatten(scale * slope.where(is_mixed, 0.0))


def gradient_preserving(
    ratio: Float[torch.Tensor, "B #T"],
    advantages: Float[torch.Tensor, "B #T"],
    log: Log | None = None,
    *,
    epsilon: NonNegativeFloat = 0.2,
    epsilon_high: NonNegativeFloat | None = None,
    beta_low: NonNegativeFloat = 1.0,
    beta_high: NonNegativeFloat = 1.0,
    delta: PositiveFloat | None = None,
) -> Float[torch.Tensor, "B #T"]:
    """Clip that bounds the weight of a token and keeps its gradient (GPPO, CE-GPPO).

    ℓ = {delta null → −b · Â; else → −min(b, δ) · Â where Â < 0, else −b · Â}, with b = β_low · (1−ε) · w/sg(w) where Â
    < 0 and w < 1−ε, β_high · (1+ε_high) · w/sg(w) where Â > 0 and w > 1+ε_high, else w. Both betas 1: GPPO
    (Klear-Reasoner, arXiv 2508.07629), in value the same as `clip`. Others: CE-GPPO (2509.20712; its β₁ is `beta_low`,
    its β₂ `beta_high`), in value scaled as well.

    `epsilon_high` (default: `epsilon`) is the upper bound. `delta`: where Â < 0, w counts as at most δ, without
    gradient: dual clip, always on in both authors' code.
    At w = 1 the gradient is REINFORCE's. Â = 0: no gradient.

    >>> ratio = torch.tensor([[1.5]], requires_grad=True)
    >>> loss = gradient_preserving(ratio, torch.tensor([[1.0]]), epsilon_high=0.25)
    >>> loss.item(), round(torch.autograd.grad(loss.sum(), ratio)[0].item(), 4)  # the gradient is −1.25 / 1.5
    (-1.25, -0.8333)
    """
    high = epsilon if epsilon_high is None else epsilon_high
    above, below = (ratio > 1 + high) & (advantages > 0), (ratio < 1 - epsilon) & (advantages < 0)
    if log is not None:
        log("clipped_low", below.float())
        log("clipped_high", above.float())
    weight = ratio.detach()
    bounded = weight.where(~above, beta_high * (1 + high)).where(~below, beta_low * (1 - epsilon))
    loss = -bounded * (ratio / weight) * advantages
    return loss if delta is None else torch.where(advantages < 0, torch.min(loss, -delta * advantages), loss)


def trajectory_balance(
    logp: Float[torch.Tensor, "B T"],
    ref_logp: Float[torch.Tensor, "B T"],
    ratio: Float[torch.Tensor, "B #T"],
    advantages: Float[torch.Tensor, "B #T"],
    mask: Bool[torch.Tensor, "B T"],
    step_batch: Batch,
    step_batch_rows: Int[torch.Tensor, "B"],
    *,
    beta: PositiveFloat = 15.0,
    epsilon: NonNegativeFloat = 0.2,
) -> Float[torch.Tensor, "B 1"]:
    """Squared imbalance of a completion between the policy and the rewards.

    ℓ = sg(clip(w, 1−ε, 1+ε)) · (log Z + meanₜ log π − β · Â − meanₜ log π_ref)², with log Z = mean_g(β · Â + meanₜ log
    π_ref − meanₜ log π_old). FlowRL, arXiv 2509.15207 eq. 6, with w of `sequence_sum`, Â of `group_relative`, and β 15.
    Every completion has one loss: use the aggregator `sequence_mean`.

    The minimum for each prompt is π ∝ π_ref · exp(β r̂): completions in proportion to their reward, not only the best.
    The paper learns Z by a network on the prompt. Here log Z is its least-squares value before the update (VarGrad,
    arXiv 2010.10436). The authors' code computes the clip of w and does not use it. With equal rewards only the term of
    the reference remains.

    >>> logp, mask = torch.tensor([[-1.0], [-1.0]]), torch.ones(2, 1, dtype=torch.bool)
    >>> inputs = {"ref_logp": logp, "advantages": torch.tensor([[1.0], [-1.0]]), "mask": mask}
    >>> step = Batch(group=torch.tensor([0, 0]), old_logp=logp, **inputs)
    >>> rows = torch.tensor([0, 1])
    >>> trajectory_balance(logp, ratio=-logp, step_batch=step, step_batch_rows=rows, beta=2.0, **inputs).tolist()
    [[4.0], [4.0]]
    """
    log_z = _log_partition(step_batch, beta)[step_batch_rows].unsqueeze(1)
    imbalance = (
        log_z + sequence_mean(logp, mask) - beta * sequence_mean(advantages, mask) - sequence_mean(ref_logp, mask)
    )
    weight = sequence_mean(ratio, mask).detach().clamp(1 - epsilon, 1 + epsilon)
    return weight * imbalance**2


def _log_partition(step: Batch, beta: float) -> Float[torch.Tensor, "B"]:
    """Return log Z of each completion's group; completions without tokens are left out."""
    terms = (
        beta * sequence_mean(step.advantages, step.mask)
        + sequence_mean(step.ref_logp, step.mask)
        - sequence_mean(step.old_logp, step.mask)
    )
    groups = Groups(terms.squeeze(1).masked_fill(~step.mask.any(1), torch.nan), step.group)
    return groups.flatten(groups.table.nanmean(1, keepdim=True)).nan_to_num(nan=0.0)
