"""The equation as code: from rewards to advantages (`score`), from log-probabilities to a loss (`objective`).

L(θ) = E[ 1/Z Σᵢ Σₜ (cᵢₜ · ℓ(wᵢₜ, Âᵢₜ) + Σₖ βₖ Ωₖᵢₜ) ]. Nothing here depends on the name of an algorithm or of a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float

from rlm_plugins.batch import Batch
from rlm_plugins.dispatch import (
    call_part,
    call_without_checks,
    check_finite,
    check_shape,
    location,
    on_last_token,
    scatter,
    select,
    without_padding,
)
from rlm_plugins.equation import Equation
from rlm_plugins.errors import PartError
from rlm_plugins.functional.statistics import discounted, expected_logp
from rlm_plugins.loss_term import aggregate_term, call_term
from rlm_plugins.nonfinite import check_rewards, loss_divergence
from rlm_plugins.registry.part import Bound
from rlm_plugins.schedule import value_at
from rlm_plugins.step_batch import with_own_step_batch

MAX_LOG_RATIO = 20.0
"""Bound of |log w|: an extreme token gives a large number, not an infinite one."""


# ------------------------------------------------------------------ once per generation batch


def score(batch: Batch, equation: Equation) -> Batch:
    """Shape the rewards, filter the groups, and compute the advantages.

    Args:
        batch: All completions of all ranks, with `rewards` (NaN: no reward applied to the completion).
        equation: The parts.

    Returns:
        The result of :func:`shape_and_filter` and then :func:`compute_advantages`.

    Raises:
        PartError: A part failed, or returned another shape or a number that is not finite; or a reward is infinite.
    """
    return compute_advantages(shape_and_filter(batch, equation), equation)


def shape_and_filter(batch: Batch, equation: Equation) -> Batch:
    """Apply the shapers to the rewards, then the filters to the groups.

    Returns:
        The batch with shaped `rewards`, `token_rewards` and `dense_rewards`, with `keep_mask` and `counts_for_refill`,
        and with `expected_logp` if a part requires it (over complete groups, before any filter). A completion without
        reward is kept, without being passed to any part; it does not count for refill.
    """
    check_rewards(batch)
    if equation.requires("expected_logp"):
        batch = replace(batch, expected_logp=expected_logp(batch.old_logp, batch.mask, batch.group))
    has_reward = ~batch.rewards.isnan()
    if not has_reward.any():
        return replace(batch, keep_mask=~has_reward, counts_for_refill=has_reward)
    subset = select(without_padding(batch), has_reward)
    subset.token_rewards = on_last_token(subset.rewards, subset.mask)
    subset.dense_rewards = torch.zeros_like(subset.token_rewards)
    for shaper in equation.shapers:
        subset = _apply_shaper(subset, shaper)
    keep = refills = torch.ones_like(subset.group, dtype=torch.bool)
    for part in equation.filters:
        selected = call_part(part, subset, "B")
        if selected.dtype != torch.bool:
            raise PartError(
                f"returned numbers ({selected.dtype})", where=location(part), allowed="booleans: True, kept"
            )
        keep = keep & selected
        refills = refills & selected if part.options.get("refill") else refills
    return replace(
        batch,
        rewards=scatter(subset.rewards, has_reward, torch.nan),
        token_rewards=scatter(subset.token_rewards, has_reward),
        dense_rewards=scatter(subset.dense_rewards, has_reward),
        keep_mask=scatter(keep, has_reward, True),
        counts_for_refill=scatter(refills, has_reward, False),
    )


def compute_advantages(batch: Batch, equation: Equation) -> Batch:
    """Compute the advantages of all completions that are kept and have a reward.

    Returns:
        The batch with `advantages` ((B, 1) or (B, T); 0 for other completions), a `mask` without the filtered
        completions, and `returns` if the advantage part returns them. Otherwise, if a part requires `returns`, they
        are the undiscounted sums of future `token_rewards`.
    """
    batch = replace(batch, mask=batch.mask & batch.keep_mask.unsqueeze(1))
    selected = batch.keep_mask & ~batch.rewards.isnan()
    if not selected.any():
        return replace(batch, advantages=torch.zeros_like(batch.rewards).unsqueeze(1), returns=batch.values)
    subset, part = select(without_padding(batch), selected), equation.advantage
    result = call_without_checks(part, subset)
    estimate, targets = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    estimate = check_shape(part, estimate, subset, "B", "B T").to(subset.rewards.dtype)
    advantages = check_finite(part, estimate.where(subset.mask, 0.0) if estimate.dim() == 2 else estimate.unsqueeze(1))
    if targets is None and equation.requires("returns"):
        targets = discounted(subset.token_rewards, 1.0, subset.mask)
    if targets is not None:
        targets = check_finite(part, check_shape(part, targets, subset, "B T").where(subset.mask, 0.0))
        batch = replace(batch, returns=scatter(targets, selected, batch.values))
    return replace(batch, advantages=scatter(advantages, selected))


def _apply_shaper(subset: Batch, shaper: Bound) -> Batch:
    """Apply one shaper: (B,) replaces the reward, changing its last token; (B, T) is added token by token."""
    change = call_part(shaper, subset, "B", "B T").to(subset.rewards.dtype)
    if change.dim() == 2:
        change = check_finite(shaper, change.where(subset.mask, 0.0))
        token_rewards, dense = subset.token_rewards + change, subset.dense_rewards + change
        return replace(subset, token_rewards=token_rewards, dense_rewards=dense, rewards=subset.rewards + change.sum(1))
    dense = subset.token_rewards + on_last_token(check_finite(shaper, change) - subset.rewards, subset.mask)
    return replace(subset, token_rewards=dense, rewards=change)


# ------------------------------------------------------------------ once per micro-batch


def objective(batch: Batch, equation: Equation) -> Float[torch.Tensor, ""]:
    """Return this micro-batch's term of the loss of its optimizer step: a scalar to be summed over micro-batches.

    Args:
        batch: Completions of one micro-batch, with `logp`, `old_logp`, `advantages`, `mask` and the global counts.
        equation: The parts.

    Raises:
        PartError: A part failed or returned another shape; the loss is not finite (also a `Divergence`), or has no
            gradient.
    """
    batch = without_padding(batch)
    if batch.step_batch is not None:
        step_batch = with_own_step_batch(without_padding(batch.step_batch))
        batch = replace(batch, step_batch=with_ratio(step_batch, equation))
    batch = with_ratio(batch, equation)
    # Autograd adds gradients in reverse order of creation. Penalties are created first, so that the sum has
    # TRL's order, and the two trainers agree to the last bit.
    terms = [(p, _log_penalty(batch, p, call_term(batch, p, 0.0))) for p in equation.penalties]
    costs = [value_at(p.beta, batch.step) * x for p, x in terms if "aggregator" not in p.options]
    loss = call_term(batch, equation.policy_loss, 0.0)
    for weight in equation.token_weights:
        loss = loss * call_term(batch, weight, 1.0).detach()
    if batch.rollout_weight is not None:
        loss = loss * batch.rollout_weight
    total = _aggregate(batch, equation, loss, costs)
    if batch.log is not None and any("aggregator" in part.options for part in equation.terms()):
        batch.log("policy_loss", (total.detach() * batch.num_micro_batches).expand(batch.mask.shape))
    for part, x in ((part, x) for part, x in terms if "aggregator" in part.options):
        total = total + value_at(part.beta, batch.step) * aggregate_term(batch, part, x)
    if batch.logp.requires_grad and not total.requires_grad:
        raise PartError(
            "has no gradient: it does not depend on the current policy",
            where=f"the loss ({location(equation.policy_loss)})",
            allowed="a function of `logp` or `ratio`, neither detached",
        )
    if not total.isfinite():
        raise loss_divergence(batch, equation)
    return total


def with_ratio(batch: Batch, equation: Equation) -> Batch:
    """Return the batch with `log_ratio` and `ratio`, if the algorithm has an importance part."""
    if equation.importance is None:
        return batch
    log_ratio = call_part(equation.importance, batch, "B 1", "B T")
    ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    return replace(batch, log_ratio=log_ratio, ratio=ratio)


def _aggregate(batch: Batch, equation: Equation, loss: torch.Tensor, costs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the policy loss and the penalties without a separate aggregator, as a scalar."""
    policy_loss = equation.policy_loss
    policy_term = aggregate_term(batch, policy_loss, loss) if "aggregator" in policy_loss.options else None
    if policy_term is not None and not costs:
        return policy_term
    loss = loss if policy_term is None else torch.zeros_like(batch.logp)
    for cost in costs:
        loss = loss + cost
    total = call_part(equation.aggregator, replace(batch, loss=loss.where(batch.mask, 0.0)))
    return total if policy_term is None else policy_term + total


def _log_penalty(batch: Batch, part: Bound, x: torch.Tensor) -> torch.Tensor:
    """Log a penalty before its `beta` is applied, and return it."""
    if batch.log is not None:
        batch.log(f"penalties/{part.part.name}", x.detach())
    return x
