"""The equation as code: from rewards to advantages (`score`), from log-probabilities to a loss (`objective`).

J(θ) = E[ 1/Z Σᵢ Σₜ cᵢₜ · ℓ(wᵢₜ, Âᵢₜ) ] − Σₖ βₖ Ωₖ. Nothing here knows the name of an algorithm or of a part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float

from rlm_plugins.batch import Batch
from rlm_plugins.errors import PartError
from rlm_plugins.parts import Bound

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

    def parts(self) -> list[Bound]:
        """All of them, in batch order."""
        order = ("shapers", "filters", "advantage", "importance", "policy_loss", "token_weights", "penalties")
        slots = [getattr(self, name) for name in (*order, "aggregator")]
        return [p for slot in slots for p in (slot if isinstance(slot, Sequence) else [slot]) if p is not None]

    def needs(self, name: str) -> bool:
        """Whether any part asks for `name` (and cannot do without it)."""
        return any(name in part.part.needs for part in self.parts())


# ------------------------------------------------------------------ once per generation


def score(batch: Batch, equation: Equation) -> Batch:
    """Shapes the rewards, chooses the rows that teach, and says how much better than expected each was.

    Args:
        batch: Every row of every process, with `rewards` (NaN: no reward applied to the row).
        equation: The parts.

    Returns:
        The batch with `rewards`, `token_rewards`, `advantages` ((B, 1) or (B, T)), `returns` where the advantage
        part gives them, and a `mask` without the rows that were filtered out. A row without reward keeps its
        place, with advantage 0.

    Raises:
        PartError: A part returned another shape, or a number that is not finite.
    """
    scored = ~batch.rewards.isnan()
    if not scored.any():
        return replace(batch, advantages=torch.zeros_like(batch.rewards).unsqueeze(1))
    rows = _select(batch, scored)
    rows.token_rewards = _on_last_token(rows.rewards, rows.mask)
    for shaper in equation.shapers:
        rows = _shaped(rows, shaper)
    keep = torch.ones_like(rows.group, dtype=torch.bool)
    for sieve in equation.filters:
        keep = keep & _checked(sieve, sieve(rows), rows, "B").bool()
    result = equation.advantage(rows)
    advantages, returns = result if isinstance(result, tuple) else (result, None)
    advantages = _finite(equation.advantage, _checked(equation.advantage, advantages, rows, "B", "B T"))
    spread = replace(
        batch,
        rewards=_back(rows.rewards, scored, fill=torch.nan),
        token_rewards=_back(rows.token_rewards, scored),
        advantages=_back(advantages if advantages.dim() == 2 else advantages.unsqueeze(1), scored),
        mask=batch.mask & _back(keep, scored, fill=True).unsqueeze(1),
    )
    if returns is not None:
        spread.returns = _back(_checked(equation.advantage, returns, rows, "B T"), scored)
    return spread


def _shaped(rows: Batch, shaper: Bound) -> Batch:
    """(B,) is the new reward, its change felt on the last token; (B, T) is added token by token."""
    change = _finite(shaper, _checked(shaper, shaper(rows), rows, "B", "B T"))
    if change.dim() == 2:
        dense = rows.token_rewards + change
        return replace(rows, token_rewards=dense, rewards=rows.rewards + (change * rows.mask).sum(1))
    dense = rows.token_rewards + _on_last_token(change - rows.rewards, rows.mask)
    return replace(rows, token_rewards=dense, rewards=change)


def _on_last_token(rewards: Float[torch.Tensor, "B"], mask: Bool[torch.Tensor, "B T"]) -> Float[torch.Tensor, "B T"]:
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return rewards.unsqueeze(1) * last


# ------------------------------------------------------------------ once per micro-batch


def objective(batch: Batch, equation: Equation) -> torch.Tensor:
    """The share of this micro-batch in the loss of its optimiser step: a scalar to be summed over micro-batches.

    Args:
        batch: Rows of one micro-batch, with `logp`, `old_logp`, `advantages`, `mask` and the global counts.
        equation: The parts.

    Raises:
        PartError: A part returned another shape.
    """
    if equation.importance is not None:
        log_ratio = _checked(equation.importance, equation.importance(batch), batch)
        ratio = log_ratio.clamp(-LARGEST_LOG_RATIO, LARGEST_LOG_RATIO).exp()
        batch = replace(batch, log_ratio=log_ratio, ratio=ratio)
    # Penalties come first only because autograd adds gradients in reverse order of creation: so they meet the
    # policy's in TRL's order, and the two trainers agree to the last bit.
    costs = [p.beta * _logged(batch, p, _checked(p, p(batch), batch)) for p in equation.penalties]
    loss = _checked(equation.policy_loss, equation.policy_loss(batch), batch)
    for weight in equation.token_weights:
        loss = loss * _checked(weight, weight(batch), batch).detach()
    if batch.rollout_weight is not None:
        loss = loss * batch.rollout_weight
    for cost in costs:
        loss = loss + cost
    total = equation.aggregator(replace(batch, loss=loss))
    if not isinstance(total, torch.Tensor) or total.dim() != 0:
        raise _wrong(equation.aggregator, total, "a scalar tensor")
    return total


def _logged(batch: Batch, part: Bound, x: torch.Tensor) -> torch.Tensor:
    if batch.log is not None:
        batch.log(f"penalties/{part.part.name}", x.detach())
    return x


# ------------------------------------------------------------------ the machine's own care


def _select(batch: Batch, keep: Bool[torch.Tensor, "B"]) -> Batch:
    """The rows to keep, of every field that has rows."""

    def pick(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: pick(x) for name, x in value.items()}
        return value[keep] if isinstance(value, torch.Tensor) and value.dim() else value

    return Batch(**{f.name: pick(getattr(batch, f.name)) for f in fields(batch)})


def _back(x: torch.Tensor, places: Bool[torch.Tensor, "B"], fill: float | bool = 0.0) -> torch.Tensor:
    """Puts rows back where they came from; `fill` where nothing did."""
    whole = x.new_full((len(places), *x.shape[1:]), fill)
    whole[places] = x
    return whole


def _checked(part: Bound, x: object, batch: Batch, *shapes: str) -> torch.Tensor:
    """The result of a part, once its shape is one of `shapes` (per-token by default)."""
    rows, tokens = batch.mask.shape
    sizes = {"B": (rows,), "B 1": (rows, 1), "B T": (rows, tokens)}
    allowed = {sizes[shape] for shape in shapes or ("B 1", "B T")}
    if not isinstance(x, torch.Tensor) or tuple(x.shape) not in allowed:
        raise _wrong(part, x, "a tensor of shape " + " or ".join(map(str, sorted(allowed))))
    return x


def _finite(part: Bound, x: torch.Tensor) -> torch.Tensor:
    if not x.isfinite().all():
        row = int((~x.isfinite()).nonzero()[0, 0])
        raise PartError(f"returned a number that is not finite for row {row}: {x[row].tolist()}", where=_place(part))
    return x


def _wrong(part: Bound, x: object, allowed: str) -> PartError:
    found = f"a tensor of shape {tuple(x.shape)}" if isinstance(x, torch.Tensor) else f"{type(x).__name__}"
    return PartError(f"returned {found}", where=_place(part), allowed=allowed)


def _place(part: Bound) -> str:
    return f"part '{part.part.full_name}' ({part.part.hook}, {part.part.file})"
