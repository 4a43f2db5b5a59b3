"""c: weights by how far the policy has moved: the future of a token (FIPO), the second moment of a step (M2PO)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from jaxtyping import Bool, Float, Int
from pydantic import NonNegativeFloat, PositiveFloat

from rlm_algorithms.policy_losses import sampler_logp
from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.statistics import discounted
from rlm_plugins.lazy import torch


def constant(logp: Float[torch.Tensor, "B T"], *, value: NonNegativeFloat = 1.0) -> Float[torch.Tensor, "B T"]:
    """c = value: the same for every token, the coefficient of the policy loss beside other terms; it may be a schedule.

    >>> constant(torch.zeros(1, 2), value=0.5).tolist()
    [[0.5, 0.5]]
    """
    return torch.full_like(logp, value)


def fipo(
    logp: Float[torch.Tensor, "B T"],
    old_logp: Float[torch.Tensor, "B T"],
    advantages: Float[torch.Tensor, "B #T"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    half_life: PositiveFloat = 32.0,
    bound: PositiveFloat = 0.2,
    high_only: bool = True,
    safety: PositiveFloat | None = 4.0,
    delta: PositiveFloat | None = None,
) -> Float[torch.Tensor, "B T"]:
    """Weight of a token by how much the update makes the tokens after it more or less likely (FIPO).

    c = {safety null → f; else → clip(f, 0.8, 1) where Â < 0 and w > safety, else f}, with f = clip(exp(Σₗ γˡ xₜ₊ₗ),
    {high_only true → 1; false → 1−bound}, 1+bound), γ = 2^(−1/half_life) and x = {delta null → log w; else → 0 where w
    > delta, else log w}. FIPO, arXiv 2603.19835; the default values are ms-swift 4.6's.

    An overshooting token with Â < 0 is not amplified, and one with w above `delta` adds nothing to the sum. On policy c
    is 1: with one update per generation batch it does nothing.

    >>> logp, mask = torch.tensor([[0.0, 0.1]]), torch.ones(1, 2, dtype=torch.bool)
    >>> fipo(logp, torch.zeros(1, 2), torch.ones(1, 1), mask, half_life=1.0).log().mul(100).round().tolist()
    [[5.0, 10.0]]
    """
    log_ratio = (logp - old_logp).detach().where(mask, 0.0)
    ratio = log_ratio.clamp(-20.0, 20.0).exp()
    moved = log_ratio if delta is None else log_ratio.where(ratio <= delta, 0.0)
    future = discounted(moved, 0.5 ** (1 / half_life), mask).clamp(-20.0, 20.0)
    weight = future.exp().clamp(1.0 if high_only else 1 - bound, 1 + bound)
    if safety is None:
        return weight
    return torch.where((advantages < 0) & (ratio > safety), weight.clamp(0.8, 1.0), weight)


def m2po(
    step_batch: Batch,
    step_batch_rows: Int[torch.Tensor, "B"],
    mask: Bool[torch.Tensor, "B T"],
    *,
    reading: Literal["paper", "areal"] = "paper",
    threshold: NonNegativeFloat = 0.04,
) -> Float[torch.Tensor, "B T"]:
    """c = 0 for the tokens whose log-ratios are so large that their second moment exceeds a threshold (M2PO).

    c = [x² is among the smallest whose mean is at most `threshold`], for the tokens of the optimizer step. M2PO, arXiv
    2510.01161, with 0.04. A mean over the step tolerates single tokens that a clip would drop, and bounds all of them
    together.

    "paper": x = log π − log μ of the current policy to the sampler, and only tokens with Â x > 0, which an update moves
    further away, are dropped; combine it with the policy loss `unclipped`. "areal": x = log μ − log π_old, from the
    engine's log-probs, over all tokens; at least one stays, those that stay share the weight of the dropped ones (a
    smaller loss mask), and the clip remains. Without an engine's log-probs μ is π_old: "areal" then keeps all, and
    "paper" does so on policy. Equal values are kept together.

    >>> logp, mask = torch.tensor([[0.1, 0.3, 0.3]]), torch.ones(1, 3, dtype=torch.bool)
    >>> advantages = torch.tensor([[1.0, 1.0, -1.0]])
    >>> step = Batch(logp=logp, old_logp=torch.zeros(1, 3), advantages=advantages, mask=mask)
    >>> m2po(step, torch.tensor([0]), mask).tolist()  # 0.01 ≤ 0.04 < (0.01 + 0.09) / 2
    [[1.0, 0.0, 1.0]]
    """
    sampled = sampler_logp(step_batch.old_logp, step_batch.rollout_logp)
    is_paper = reading == "paper"
    moved = step_batch.logp - sampled if is_paper else sampled - step_batch.old_logp
    region = step_batch.mask & (step_batch.advantages * moved > 0) if is_paper else step_batch.mask
    squares = (moved.double() ** 2).where(region, 0.0)
    ordered = squares[region].sort().values
    means = ordered.cumsum(0) / torch.arange(1, len(ordered) + 1, device=ordered.device)
    count = int((means <= threshold).sum()) if is_paper else max(1, int((means < threshold).sum()))
    limit = ordered[count - 1] if count and len(ordered) else -1.0
    kept = ~region | (squares <= limit)
    weight = kept.to(step_batch.logp.dtype)
    if not is_paper:
        weight = weight * region.sum() / (kept & region).sum().clamp(min=1)
    return weight[step_batch_rows, : mask.shape[1]]


def _without_effect_on_policy(trainer: Mapping[str, Any], **knobs: Any) -> str:
    """Return a warning if every token is trained on before the policy changes."""
    one_update = trainer.get("num_iterations") == 1 and trainer.get("steps_per_generation") == trainer.get(
        "gradient_accumulation_steps"
    )
    if not one_update or trainer.get("stale") or trainer.get("use_vllm"):
        return ""
    return (
        "with one update per generation batch the policy is still the one that sampled, and all its weights are 1: set "
        "`trainer: {num_iterations: 2}`, or `steps_per_generation` to a multiple of `gradient_accumulation_steps`"
    )


fipo.warn = m2po.warn = _without_effect_on_policy  # type: ignore[attr-defined]
