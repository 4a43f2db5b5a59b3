"""The equation as code: from rewards to advantages (`score`), from log-probabilities to a loss (`objective`).

J(θ) = E[ 1/Z Σᵢ Σₜ cᵢₜ · ℓ(wᵢₜ, Âᵢₜ) ] − Σₖ βₖ Ωₖ. Nothing here knows the name of an algorithm or of a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Float

from rlm_plugins.batch import Batch
from rlm_plugins.dispatch import (
    call_part,
    call_unchecked,
    check_finite,
    check_shape,
    location,
    on_last_token,
    scatter,
    select,
    without_padding,
)
from rlm_plugins.errors import PartError
from rlm_plugins.functional.statistics import discounted, expected_logp
from rlm_plugins.registry.part import Bound
from rlm_plugins.schedule import at
from rlm_plugins.step_batch import with_own_step_batch

LARGEST_LOG_RATIO = 20.0
"""log w is clamped here, so that a runaway token is a large number and not an infinite one."""


@dataclass(frozen=True)
class Equation:
    """The parts that stand for the symbols, bound and ready to be called."""

    advantage: Bound
    policy_loss: Bound
    aggregator: Bound
    importance: Bound | None = None
    shapers: Sequence[Bound] = ()
    filters: Sequence[Bound] = ()
    token_weights: Sequence[Bound] = ()
    penalties: Sequence[Bound] = ()

    @classmethod
    def of(cls, slots: Mapping[str, Any]) -> Equation:
        """From the slots of a row; who writes and which problem comes next stand in them too, and not in here."""
        return cls(**{f.name: slots[f.name] for f in fields(cls) if slots.get(f.name) is not None})

    def parts(self) -> list[Bound]:
        """All of them, in batch order."""
        order = ("shapers", "filters", "advantage", "importance", "policy_loss", "token_weights", "penalties")
        slots = [getattr(self, name) for name in (*order, "aggregator")]
        return [p for slot in slots for p in (slot if isinstance(slot, Sequence) else [slot]) if p is not None]

    def needs(self, name: str) -> bool:
        """Whether any part asks for `name` (and cannot do without it)."""
        return any(name in (*part.part.needs, *part.part.update_needs) for part in self.parts())

    @property
    def refill(self) -> int | None:
        """How many generation batches may be drawn to fill one: the least that a filter allows; None: none refills."""
        return min((sieve.beside["refill"] for sieve in self.filters if sieve.beside.get("refill")), default=None)


# ------------------------------------------------------------------ once per generation


def score(batch: Batch, equation: Equation) -> Batch:
    """Shapes the rewards, chooses the rows that teach, and says how much better than expected each was.

    Args:
        batch: Every row of every process, with `rewards` (NaN: no reward applied to the row).
        equation: The parts.

    Returns:
        The batch as :func:`sift` and then :func:`compare` leave it.

    Raises:
        PartError: A part failed, returned another shape or a number that is not finite; a reward is infinite.
    """
    return compute_advantages(shape_and_filter(batch, equation), equation)


def shape_and_filter(batch: Batch, equation: Equation) -> Batch:
    """Shapes the rewards and chooses the rows that teach: shapers, then filters.

    Returns:
        The batch with `rewards`, `token_rewards` and `dense_rewards` as shaped, `kept`, `wanted`, and `expected_logp`
        where a part names it (over whole groups, whatever the filters drop). A row without reward is kept: nobody sees
        it, and it keeps its place; but no batch is filled with it.
    """
    _refuse_infinite(batch)
    if equation.needs("expected_logp"):
        batch = replace(batch, expected_logp=expected_logp(batch.old_logp, batch.mask, batch.group))
    scored = ~batch.rewards.isnan()
    if not scored.any():
        return replace(batch, keep_mask=~scored, counts_for_refill=scored)
    rows = select(without_padding(batch), scored)
    rows.token_rewards = on_last_token(rows.rewards, rows.mask)
    rows.dense_rewards = torch.zeros_like(rows.token_rewards)
    for shaper in equation.shapers:
        rows = _shaped(rows, shaper)
    keep = wanted = torch.ones_like(rows.group, dtype=torch.bool)
    for sieve in equation.filters:
        said = call_part(sieve, rows, "B")
        if said.dtype != torch.bool:
            raise PartError(f"returned numbers ({said.dtype})", where=location(sieve), allowed="booleans: True, kept")
        keep = keep & said
        wanted = wanted & said if sieve.beside.get("refill") else wanted
    return replace(
        batch,
        rewards=scatter(rows.rewards, scored, torch.nan),
        token_rewards=scatter(rows.token_rewards, scored),
        dense_rewards=scatter(rows.dense_rewards, scored),
        keep_mask=scatter(keep, scored, True),
        counts_for_refill=scatter(wanted, scored, False),
    )


def compute_advantages(batch: Batch, equation: Equation) -> Batch:
    """Says how much better than expected each row was; only rows that were kept and scored are compared.

    Returns:
        The batch with `advantages` ((B, 1) or (B, T); 0 where nothing was compared), `returns` where the advantage
        part gives them (else, where a part names them, the rewards to come), and a `mask` without the rows that were
        filtered out.
    """
    batch = replace(batch, mask=batch.mask & batch.keep_mask.unsqueeze(1))
    compared = batch.keep_mask & ~batch.rewards.isnan()
    if not compared.any():
        return replace(batch, advantages=torch.zeros_like(batch.rewards).unsqueeze(1), returns=batch.values)
    rows, part = select(without_padding(batch), compared), equation.advantage
    result = call_unchecked(part, rows)
    found, targets = result if isinstance(result, tuple) and len(result) == 2 else (result, None)
    found = check_shape(part, found, rows, "B", "B T").to(rows.rewards.dtype)
    advantages = check_finite(part, found.where(rows.mask, 0.0) if found.dim() == 2 else found.unsqueeze(1))
    if targets is None and equation.needs("returns"):
        targets = discounted(rows.token_rewards, 1.0, rows.mask)
    if targets is not None:
        targets = check_finite(part, check_shape(part, targets, rows, "B T").where(rows.mask, 0.0))
        batch = replace(batch, returns=scatter(targets, compared, batch.values))
    return replace(batch, advantages=scatter(advantages, compared))


def _shaped(rows: Batch, shaper: Bound) -> Batch:
    """(B,) is the new reward, its change felt on the last token; (B, T) is added token by token."""
    change = call_part(shaper, rows, "B", "B T").to(rows.rewards.dtype)
    if change.dim() == 2:
        change = check_finite(shaper, change.where(rows.mask, 0.0))
        token_rewards, dense = rows.token_rewards + change, rows.dense_rewards + change
        return replace(rows, token_rewards=token_rewards, dense_rewards=dense, rewards=rows.rewards + change.sum(1))
    dense = rows.token_rewards + on_last_token(check_finite(shaper, change) - rows.rewards, rows.mask)
    return replace(rows, token_rewards=dense, rewards=change)


def _refuse_infinite(batch: Batch) -> None:
    if (infinite := batch.rewards.isinf()).any():
        row = int(infinite.nonzero()[0])
        guilty = [name for name, values in (batch.named_rewards or {}).items() if values[row].isinf()]
        raise PartError(
            f"the reward of row {row} is {batch.rewards[row].item()}",
            where=f"reward '{guilty[0]}'" if guilty else "",
            allowed="a finite number, or None where the reward does not apply",
        )


# ------------------------------------------------------------------ once per micro-batch


def objective(batch: Batch, equation: Equation) -> Float[torch.Tensor, ""]:
    """The share of this micro-batch in the loss of its optimiser step: a scalar to be summed over micro-batches.

    Args:
        batch: Rows of one micro-batch, with `logp`, `old_logp`, `advantages`, `mask` and the global counts.
        equation: The parts.

    Raises:
        PartError: A part failed or returned another shape; the loss is not finite, or has no gradient.
    """
    batch = without_padding(batch)
    if batch.step_batch is not None:
        batch = replace(batch, step_batch=_weighed(with_own_step_batch(without_padding(batch.step_batch)), equation))
    batch = _weighed(batch, equation)
    # Penalties come first only because autograd adds gradients in reverse order of creation: so they meet the
    # policy's in TRL's order, and the two trainers agree to the last bit.
    costs = [at(p.beta, batch.step) * _logged(batch, p, _of_source(batch, p, 0.0)) for p in equation.penalties]
    loss = _of_source(batch, equation.policy_loss, 0.0)
    for weight in equation.token_weights:
        loss = loss * _of_source(batch, weight, 1.0).detach()
    if batch.rollout_weight is not None:
        loss = loss * batch.rollout_weight
    for cost in costs:
        loss = loss + cost
    batch = replace(batch, loss=loss.where(batch.mask, 0.0))
    total = call_part(equation.aggregator, batch)
    if batch.logp.requires_grad and not total.requires_grad:
        raise PartError(
            "has no gradient: nothing in it depends on the policy now",
            where=f"the loss ({location(equation.policy_loss)})",
            allowed="a function of `logp` or `ratio`, neither detached",
        )
    if not total.isfinite():
        raise _not_finite(batch, equation)
    return total


def _weighed(batch: Batch, equation: Equation) -> Batch:
    """The batch with `log_ratio` and `ratio`, where the algorithm has an importance part."""
    if equation.importance is None:
        return batch
    log_ratio = call_part(equation.importance, batch, "B 1", "B T")
    ratio = log_ratio.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()
    return replace(batch, log_ratio=log_ratio, ratio=ratio)


def _of_source(batch: Batch, part: Bound, elsewhere: float) -> torch.Tensor:
    """What a part says of the rows whose `source` it is for (every row, where the recipe names none)."""
    x, source = call_part(part, batch, "B 1", "B T"), part.beside.get("source")
    return x if source is None else x.where(batch.sources[source].unsqueeze(1), elsewhere)


def _not_finite(batch: Batch, equation: Equation) -> PartError:
    """Who is to blame for a loss that is no number: the first, in batch order, whose answer is none."""
    if not batch.logp.isfinite().all():
        hint = "the weights have run away: a smaller `learning_rate`, or look at `grad_norm` in metrics.jsonl"
        return PartError("the policy's log-probabilities are not finite", where="the loss", hint=hint)
    parts = [equation.importance, *equation.penalties, equation.policy_loss, *equation.token_weights]
    for part in (part for part in parts if part is not None):
        x = call_part(part, batch, "B 1", "B T").expand(batch.mask.shape)[batch.mask]
        if not x.isfinite().all():
            worst = x[~x.isfinite()][0].item()
            return PartError(f"returned {worst} for a token", where=location(part), allowed="finite numbers")
    return PartError("returned a number that is not finite", where=location(equation.aggregator))


def _logged(batch: Batch, part: Bound, x: torch.Tensor) -> torch.Tensor:
    if batch.log is not None:
        batch.log(f"penalties/{part.part.name}", x.detach())
    return x
