"""ℓ: trajectory balance, which matches the policy to a distribution of rewards (hook ``rlm_policy_losses``)."""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_plugins.batch import Batch
from rlm_plugins.functional.statistics import Groups
from rlm_plugins.lazy import torch


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

    ℓ = sg(clip(w, 1−ε, 1+ε)) · (log Z + mean log π − beta · Â − mean log π_ref)², where both means are over the tokens
    of the completion. FlowRL, arXiv 2509.15207 eq. 6, with w of `sequence_sum`, Â of `group_relative`, and β 15. Every
    completion has one loss: use the aggregator `sequence_mean`.

    The minimum for each prompt is π ∝ π_ref · exp(β r̂): completions in proportion to their reward, not only the best.
    The paper learns Z by a network on the prompt. Here log Z is its least-squares value before the update (VarGrad,
    arXiv 2010.10436): the mean of beta · Â + mean log π_ref − mean log π_old over the group. The authors' code computes
    the clip of w and does not use it. With equal rewards only the term of the reference remains.

    >>> logp, mask = torch.tensor([[-1.0], [-1.0]]), torch.ones(2, 1, dtype=torch.bool)
    >>> inputs = {"ref_logp": logp, "advantages": torch.tensor([[1.0], [-1.0]]), "mask": mask}
    >>> step = Batch(group=torch.tensor([0, 0]), old_logp=logp, **inputs)
    >>> rows = torch.tensor([0, 1])
    >>> trajectory_balance(logp, ratio=-logp, step_batch=step, step_batch_rows=rows, beta=2.0, **inputs).tolist()
    [[4.0], [4.0]]
    """
    log_z = _log_partition(step_batch, beta)[step_batch_rows].unsqueeze(1)
    imbalance = log_z + _mean(logp, mask) - beta * _mean(advantages, mask) - _mean(ref_logp, mask)
    weight = _mean(ratio, mask).detach().clamp(1 - epsilon, 1 + epsilon)
    return weight * imbalance**2


def _log_partition(step: Batch, beta: float) -> Float[torch.Tensor, "B"]:
    """Return log Z of each completion's group; completions without tokens are left out."""
    terms = beta * _mean(step.advantages, step.mask) + _mean(step.ref_logp, step.mask) - _mean(step.old_logp, step.mask)
    groups = Groups(terms.squeeze(1).masked_fill(~step.mask.any(1), torch.nan), step.group)
    return groups.flatten(groups.table.nanmean(1, keepdim=True)).nan_to_num(nan=0.0)


def _mean(x: Float[torch.Tensor, "B #T"], mask: Bool[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B 1"]:
    """Return the mean over the trained tokens of each completion; 0 if it has none."""
    total = x.expand(mask.shape).where(mask, 0.0).sum(1, keepdim=True)
    return total / mask.sum(1, keepdim=True).clamp(min=1)
