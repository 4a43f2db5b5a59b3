"""Replay of a capsule: scores, loss and its gradient in the log-probs, under any equation and without a model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.capsule.loss_replay import (
    recorded_micro_batches,
    replayed_loss,
    sampled_micro_batches,
    step_table,
)
from rlm_plugins.capsule.storage import Capsule
from rlm_plugins.dispatch import select, update_part
from rlm_plugins.divergence import check_number
from rlm_plugins.equation import Equation
from rlm_plugins.errors import RlmError
from rlm_plugins.functional.rng_state import temporary_rng_state
from rlm_plugins.step import compute_advantages, shape_and_filter, with_ratio

_FUNCTIONS = ("logprobs_of", "generate", "rewards_of")


@dataclass(frozen=True)
class Replay:
    """Result of a replay.

    Args:
        scored: All completions of the generation batch with their advantages.
        losses: Loss of each micro-batch, in the order of the step.
        rows: (R,) indices in `scored` of the completions of the optimizer step, sorted.
        step: The same completions, with what the loss parts received.
        tokens: Name → (R, T), 0 outside the mask: `gradient` is ∂J/∂log π; `entropy_gradient`, `ratio`, and what the
            loss parts log.
    """

    scored: Batch
    losses: list[torch.Tensor]
    rows: torch.Tensor
    step: Batch
    tokens: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def loss(self) -> float:
        """Loss of the optimizer step: the sum over its micro-batches."""
        return float(sum(loss.double() for loss in self.losses)) if self.losses else 0.0


def replay(capsule: Capsule, equation: Equation, *, is_recorded: bool, weights: Mapping[str, float]) -> Replay:
    """Compute a training step again.

    Args:
        capsule: The step.
        equation: Its parts, not called before.
        is_recorded: True if the algorithm is that of the run: its own micro-batches are then used, and the result is
            equal to the bit. Another algorithm gets the micro-batches as they were sampled.
        weights: Label of each reward → its weight.

    Raises:
        RlmError: The step lacks data that a part requires, or a part failed, as it may have in the run.
    """
    if capsule.batch is None:
        raise RlmError(
            "expected a step with scored completions, but it ended before",
            where=str(capsule.folder),
            hint=f"its error was: {capsule.fault.get('problem', 'none')}",
        )
    with temporary_rng_state(capsule.rng.get("scoring")):
        _load_states(capsule, equation)
        scored = _scored(capsule, equation, weights, is_recorded=is_recorded)
        for part in equation.parts():
            update_part(part, scored)
    portions = [portion for update in capsule.updates for portion in update.get("portions", ())]
    if not portions:
        rows = torch.zeros(0, dtype=torch.long)
        return Replay(scored, [], rows, select(scored, rows))
    table, rows = step_table(portions, scored)
    batches = (
        recorded_micro_batches(portions, rows, scored)
        if is_recorded
        else sampled_micro_batches(capsule, equation, table, rows, scored)
    )
    tokens: dict[str, torch.Tensor] = {}
    losses = [replayed_loss(batch, positions, equation, tokens, table.mask.shape) for batch, positions in batches]
    for loss in losses if capsule.fault.get("kind") == "Divergence" else ():
        check_number(float(loss), "the loss", capsule.step - 1)
    return Replay(scored, losses, rows, with_ratio(table, equation), tokens)


def differences_from_record(capsule: Capsule, result: Replay) -> list[str]:
    """Return what differs in a bit between the replay under the algorithm of the run; empty if nothing does."""
    different = []
    for name, recorded in capsule.scored.items():
        value = getattr(result.scored, name)
        if value is None or not _equal(value, recorded):
            different.append(name)
    portions = [portion for update in capsule.updates for portion in update.get("portions", ())]
    recorded_losses = [portion.get("loss") for portion in portions]
    for number, (loss, recorded) in enumerate(zip(result.losses, recorded_losses, strict=False)):
        if recorded is not None and not _equal(loss, recorded.to(loss.device)):
            different.append(f"loss of micro-batch {number}")
    return different


def _equal(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    return actual.shape == expected.shape and torch.equal(
        actual.nan_to_num(nan=1e30), expected.to(actual.dtype).nan_to_num(nan=1e30)
    )


# ------------------------------------------------------------------ scoring


def _load_states(capsule: Capsule, equation: Equation) -> None:
    """Restore the state of each part that the step had under the same name."""
    states = [(name.partition(":")[2], state) for name, state in capsule.states.items()]
    for part in equation.parts():
        entry = next((entry for entry in states if entry[0] == part.part.full_name), None)
        if entry is not None and hasattr(part.target, "load_state_dict"):
            states.remove(entry)
            part.target.load_state_dict(copy.deepcopy(entry[1]))


def _scored(capsule: Capsule, equation: Equation, weights: Mapping[str, float], *, is_recorded: bool) -> Batch:
    batch = replace(_with_functions(capsule), log=lambda name, x: None)
    if not (capsule.is_shaped and is_recorded):
        rewards = _weighted(batch, weights)
        batch = batch if is_recorded else _with_statistics(capsule, batch, equation)
        empty = dict.fromkeys(("token_rewards", "dense_rewards", "keep_mask", "counts_for_refill", "expected_logp"))
        batch = shape_and_filter(replace(batch, rewards=rewards, **empty), equation)  # type: ignore[arg-type]
    return compute_advantages(batch, equation)


def _weighted(batch: Batch, weights: Mapping[str, float]) -> torch.Tensor:
    """Return Σ weight · reward (B,), as the trainer computes it; NaN where the run had no reward."""
    if not batch.named_rewards:
        return batch.rewards
    values = torch.stack([batch.named_rewards[label] for label in weights if label in batch.named_rewards], 1)
    factors = torch.tensor([weights[label] for label in weights if label in batch.named_rewards], dtype=torch.float32)
    return (values * factors.to(values.device)).nansum(1).masked_fill(batch.rewards.isnan(), torch.nan)


def _with_statistics(capsule: Capsule, batch: Batch, equation: Equation) -> Batch:
    """Fill in log-probs and entropies that no scoring part of the run required, from the first pass of the update."""
    names = {"old_logp": "logp", "entropy": "entropy"}
    required = {
        name for name in names if equation.requires(name) or (name == "old_logp" and equation.requires("expected_logp"))
    }
    missing = [name for name in required if getattr(batch, name) is None]
    portions = [portion for update in capsule.updates for portion in update.get("portions", ())]
    if not missing or not portions or capsule.measured.get("generated_at") != capsule.step - 1:
        return batch
    table, rows = step_table(portions, Batch())
    if len(rows) != len(batch.group):
        return batch
    return replace(batch, **{name: getattr(table, names[name]) for name in missing})


def _with_functions(capsule: Capsule) -> Batch:
    """Return the generation batch with functions that return what they returned in the run, in the same order."""
    assert capsule.batch is not None
    calls = list(capsule.calls)

    def recorded(name: str) -> Callable[..., Any]:
        def answer(*args: Any, **options: Any) -> Any:
            position = next((i for i, (called, _) in enumerate(calls) if called == name), None)
            if position is None:
                hint = "a capsule of `capsule: {every: N}` holds the results of the algorithm of the run"
                raise RlmError(f"calls `{name}`, which requires the model", where="replay", hint=hint)
            return copy.deepcopy(calls.pop(position)[1])

        return answer

    functions: dict[str, Any] = {name: recorded(name) for name in _FUNCTIONS}
    return replace(capsule.batch, **functions)
