"""The equation as code: from rewards to advantages (`score`), from log-probabilities to a loss (`objective`).

The step batch holds every completion that an optimizer step trains on, over micro-batches and ranks, in the order of
generation. So a mean, a quantile or a random choice over it does not depend on how the step is split. One exception:
if a step accumulates over several generation batches, the later ones do not exist yet when the first is trained on.
Each generation batch is then a step batch of its own.

L(θ) = E[ 1/Z Σᵢ Σₜ (cᵢₜ · ℓ(wᵢₜ, Âᵢₜ) + Σₖ βₖ Ωₖᵢₜ) ]. Nothing here depends on the name of an algorithm or of a part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from operator import attrgetter, itemgetter
from typing import Any

import torch
from jaxtyping import Float

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.dispatch import (
    aggregate_term,
    attribute_errors,
    call_part,
    check_finite,
    check_shape,
    location,
    on_last_token,
    scatter,
    select,
    without_padding,
)
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.knobs import value_at
from rlm_plugins.equation.statistics import discounted, expected_logp
from rlm_plugins.errors import PartError, RlmError
from rlm_plugins.registry.part import Bound

Gather = Callable[[torch.Tensor], torch.Tensor]
"""Completions of this rank → completions of all ranks, in rank order."""


def build_step_batch(
    micro_batches: Sequence[Batch],
    positions: Sequence[torch.Tensor],
    gather: Gather = lambda x: x,
    process: int = 0,
) -> tuple[Batch, list[torch.Tensor]]:
    """Concatenate micro-batches over ranks, and return the indices of each micro-batch in the result.

    Args:
        micro_batches: The micro-batches of this rank.
        positions: For each, (B,) sort keys of its completions among those of all ranks; a completion may occur twice.
        gather: Gathers over the ranks, all of which hold the same number of completions.
        process: The rank of this process.

    Returns:
        All completions of all ranks without gradient, and for each micro-batch the indices (B,) of its completions.
    """
    order = gather(torch.cat(list(positions))).argsort(stable=True)
    count = sum(map(len, positions))
    local_rows = order.argsort()[process * count : (process + 1) * count]

    def joined(values: list[Any]) -> Any:
        if isinstance(values[0], dict):
            return {key: joined(list(map(itemgetter(key), values))) for key in values[0]}
        if isinstance(values[0], torch.Tensor) and values[0].dim():
            return gather(torch.cat([x.detach() for x in values]))[order]
        return values[0]

    columns = {f.name: list(map(attrgetter(f.name), micro_batches)) for f in fields(Batch)}
    step_batch = Batch(**{name: joined(values) for name, values in columns.items()})
    step_batch.step_batch = step_batch.step_batch_rows = step_batch.log = None  # type: ignore[assignment]
    return step_batch, list(local_rows.split([len(position) for position in positions]))


def with_own_step_batch(batch: Batch) -> Batch:
    """Return `batch` as an optimizer step of one micro-batch: it is its own step batch.

    >>> batch = Batch(mask=torch.ones(2, 3, dtype=torch.bool), logp=torch.zeros(2, 3, requires_grad=True))
    >>> with_own_step_batch(batch).step_batch.logp.requires_grad, with_own_step_batch(batch).step_batch_rows.tolist()
    (False, [0, 1])
    """
    step_batch, (rows,) = build_step_batch([batch], [torch.arange(len(batch.mask), device=batch.mask.device)])
    return replace(batch, step_batch=step_batch, step_batch_rows=rows)


MAX_LOSS_OR_NORM = 1e8
"""Largest loss and largest norm of a gradient."""
MAX_WEIGHT_GROWTH = 10.0
"""Largest ratio of max |w| to 1 + max |w| before the first step."""


class Divergence(RlmError):
    """Training diverged; `is_before_update` is True if the last complete optimizer step is sound."""

    is_before_update = False


class LossDivergence(Divergence, PartError):
    """Loss that is not finite; `where` is the policy, or the first part that returned such a number."""

    is_before_update = True


def check_number(value: float, name: str, step: int) -> None:
    """Check a loss, or the norm of a gradient, before it changes a weight."""
    if not abs(value) <= MAX_LOSS_OR_NORM:
        error = Divergence(f"training diverged in step {step + 1}: {name} is {value:g}")
        error.is_before_update = True
        raise error


def max_abs(weights: Sequence[torch.Tensor]) -> float:
    """Return max |w|, not finite if any weight is; of sharded weights over all ranks, by a collective call."""
    local = [_shard(w).detach() for w in weights]
    present = [w for w in local if w.numel()]
    largest = torch.zeros((), device=local[0].device if local else None)
    if present:
        norms = torch._foreach_norm(present, math.inf)
        largest = torch.stack([norm.float().to(norms[0].device) for norm in norms]).amax()
    if any(hasattr(w, "to_local") or hasattr(w, "ds_tensor") for w in weights):
        largest = largest.nan_to_num(nan=math.inf)  # the maximum over ranks may leave out NaN
        torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
    return float(largest)


def _shard(w: Any) -> torch.Tensor:
    """Return this rank's part of a weight that FSDP2 or ZeRO-3 shards."""
    if hasattr(w, "ds_tensor"):
        return w.ds_tensor  # type: ignore[no-any-return]
    return w.to_local() if hasattr(w, "to_local") else w  # type: ignore[no-any-return]


def check_weights(weights: Sequence[torch.Tensor], initial: float, name: str, step: int) -> None:
    """Check that the weights are finite and have not grown much beyond `initial`, max |w| before the first step."""
    value = max_abs(weights)
    if not value <= MAX_WEIGHT_GROWTH * (1 + initial):
        grown = f"; before the first step it was {initial:g}" if math.isfinite(value) else ""
        raise Divergence(f"training diverged in step {step + 1}: the largest weight of {name} is {value:g}{grown}")


@contextmanager
def nonfinite_logits(step: int) -> Iterator[None]:
    """Convert an error for sampling from logits that are not finite, torch's or a generator's, into `Divergence`."""
    try:
        yield
    except (RuntimeError, PartError) as error:
        if not any(words in str(error) for words in ("probability tensor", "finite logits")):
            raise
        if step == 0:
            hint = "the weights hold NaN, infinite or huge numbers: load others"
            raise Divergence("the logits of the policy are not finite before the first step", hint=hint) from None
        raise Divergence(f"training diverged: after step {step} the logits of the policy are not finite") from None


def check_rewards(batch: Batch) -> None:
    """Check that no reward is infinite."""
    if (infinite := batch.rewards.isinf()).any():
        row = int(infinite.nonzero()[0])
        causes = [name for name, values in (batch.named_rewards or {}).items() if values[row].isinf()]
        raise PartError(
            f"the reward of completion {row} is {batch.rewards[row].item()}",
            where=f"reward '{causes[0]}'" if causes else "",
            allowed="a finite number, or None where the reward does not apply",
        )


def loss_divergence(batch: Batch, equation: Equation) -> LossDivergence:
    """Return the error of a loss that is not finite; it names the first part, in batch order, with such a result."""
    diverged = "training diverged" if batch.step is None else f"training diverged in step {batch.step + 1}"
    if not batch.logp.isfinite().all():
        error = LossDivergence(f"{diverged}: the policy's log-probabilities are not finite", where="the loss")
        error.is_before_update = False  # an earlier step has made its weights so
        return error
    parts = [equation.importance, *equation.penalties, equation.policy_loss, *equation.token_weights]
    for part in (part for part in parts if part is not None):
        x = call_part(part, batch, "B 1", "B T").expand(batch.mask.shape)[batch.mask]
        if not x.isfinite().all():
            value = x[~x.isfinite()][0].item()
            problem = f"{diverged}: returned {value} for a token"
            return LossDivergence(problem, where=location(part), allowed="finite numbers")
    return LossDivergence(f"{diverged}: returned a number that is not finite", where=location(equation.aggregator))


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
    with attribute_errors(part):
        result = part(subset)
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
    raw, batch = batch, without_padding(batch)
    if batch.step_batch is not None:
        step_batch = with_own_step_batch(without_padding(batch.step_batch))
        batch = replace(batch, step_batch=with_ratio(step_batch, equation))
    batch = with_ratio(batch, equation)
    # Autograd adds gradients in reverse order of creation. Penalties are created first, so that the sum has
    # TRL's order, and the two trainers agree to the last bit.
    shown = {False: batch, True: replace(batch, logp=raw.logp)}  # True: with the tokens of the environment
    results = [call_part(p, shown["observation_mask" in p.part.data], neutral=0.0) for p in equation.penalties]
    terms = [(p, _log_penalty(batch, p, x)) for p, x in zip(equation.penalties, results, strict=True)]
    costs = [value_at(p.beta, batch.step) * x for p, x in terms if "aggregator" not in p.options]
    loss = call_part(equation.policy_loss, batch, neutral=0.0)
    for weight in equation.token_weights:
        loss = loss * call_part(weight, batch, neutral=1.0).detach()
    if batch.rollout_weight is not None:
        loss = loss * batch.rollout_weight
    total = _aggregate(batch, equation, loss, costs)
    if batch.log is not None and any("aggregator" in part.options for part in equation.terms()):
        batch.log("policy_loss", total.detach())
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
