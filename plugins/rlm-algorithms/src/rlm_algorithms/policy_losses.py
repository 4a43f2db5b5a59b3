"""ℓ: a clip that keeps gradients (GPPO, CE-GPPO), and trajectory balance (FlowRL)."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_algorithms.imitation_losses import sequence_mean
from rlm_plugins.equation.batch import Batch, Log
from rlm_plugins.equation.statistics import Groups
from rlm_plugins.lazy import torch


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
