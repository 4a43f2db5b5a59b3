"""Replay of a capsule without the model: scoring, loss, and the gradient of each token."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch

from rlm_plugins.equation.batch import Batch
from rlm_plugins.equation.dispatch import select, term_counts, update_part
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.rng_state import temporary_rng_state
from rlm_plugins.equation.step import (
    build_step_batch,
    check_number,
    compute_advantages,
    objective,
    shape_and_filter,
    with_ratio,
)
from rlm_plugins.errors import RlmError
from rlm_view.capsule import Capsule

LEAVES = ("logp", "entropy", "values", "top_logp")
_OF_SCORING = ("advantages", "mask", "rewards", "returns", "expected_logp")
"""Fields of the loss phase that the scoring phase computes."""


def step_table(portions: list[dict[str, Any]], scored: Batch) -> tuple[Batch, torch.Tensor]:
    """Return the completions of the optimizer step with everything of their forward passes, and their indices."""
    width = max(portion["batch"].mask.shape[1] for portion in portions)
    filled = [_widened(_with_skipped(portion), width) for portion in portions]
    table, _ = build_step_batch(filled, [portion["rows"] for portion in portions])
    rows = torch.cat([portion["rows"] for portion in portions]).sort(stable=True).values
    return _with_scores(table, rows, scored), rows


def _with_skipped(portion: Mapping[str, Any]) -> Batch:
    """Return the batch of a portion with the log-probs of completions whose forward pass was skipped."""
    batch, skipped = portion["batch"], portion.get("skipped")
    batch = replace(batch, step_batch=None, step_batch_rows=None)
    if skipped is None:
        return batch  # type: ignore[no-any-return]
    rows, logp, entropy = skipped
    changed = {"logp": batch.logp.clone(), "entropy": batch.entropy.clone(), "old_logp": batch.old_logp.clone()}
    changed["logp"][rows], changed["entropy"][rows] = logp.to(batch.logp.dtype), entropy.to(batch.entropy.dtype)
    if not portion["knows_old"]:
        changed["old_logp"][rows] = changed["logp"][rows]
    return replace(batch, **changed)


def _widened(batch: Batch, width: int) -> Batch:
    """Return a batch whose completions are padded to a width: processes have completions of different lengths."""
    shape, padding = batch.mask.shape, width - batch.mask.shape[1]
    if not padding:
        return batch
    values = {f.name: getattr(batch, f.name) for f in fields(Batch)}
    per_token = {name: x for name, x in values.items() if isinstance(x, torch.Tensor) and x.shape == shape}
    wider: dict[str, Any] = {name: torch.nn.functional.pad(x, (0, padding)) for name, x in per_token.items()}
    return replace(batch, **wider)


def _with_scores(batch: Batch, rows: torch.Tensor, scored: Batch) -> Batch:
    """Return a batch of the loss phase with the results of the scoring phase, cut to its width."""
    width, changed = batch.mask.shape[1], {}
    for name in _OF_SCORING:
        value = getattr(scored, name)
        if value is not None:
            row_values = value[rows]
            changed[name] = row_values[:, :width] if row_values.dim() == 2 else row_values
    return replace(batch, **changed)


def recorded_micro_batches(
    portions: list[dict[str, Any]], rows: torch.Tensor, scored: Batch
) -> Iterator[tuple[Batch, torch.Tensor]]:
    """Yield the micro-batches of the run, each with its row indices in the table: the replay is equal to the bit."""
    for portion in portions:
        positions = torch.searchsorted(rows, portion["rows"])
        yield _with_scores(portion["batch"], portion["rows"], scored), positions


def sampled_micro_batches(
    capsule: Capsule, equation: Equation, table: Batch, rows: torch.Tensor, scored: Batch
) -> Iterator[tuple[Batch, torch.Tensor]]:
    """Yield the micro-batches of the step as they were sampled, each with its row indices in the table."""
    if capsule.measured.get("accumulation", 1) > capsule.measured.get("steps_per_generation", 1):
        problem = "a step over several generation batches can only be replayed under its own algorithm"
        raise RlmError(problem, where=f"step {capsule.step}", hint="a capsule of a run with `steps_per_generation` set")
    table = replace(table, **_counts(capsule, scored, equation))
    deals = [deal for update in capsule.updates for deal in update.get("deal", ())] or [rows]
    needs_step = equation.requires("step_batch") or equation.requires("step_batch_rows")
    for deal in deals:
        positions = torch.searchsorted(rows, deal).clamp(max=len(rows) - 1)
        positions = positions[rows[positions] == deal]
        batch = select(table, positions)
        if needs_step:
            batch.step_batch, batch.step_batch_rows = replace(table), positions
        yield batch, positions


def _counts(capsule: Capsule, scored: Batch, equation: Equation) -> dict[str, Any]:
    """Return the global counts of the optimizer step, as the trainer computes them from the scored completions."""
    share = capsule.measured.get("accumulation", 1) / capsule.measured.get("steps_per_generation", 1)
    terms = term_counts(scored, equation.terms())
    return {
        "term_counts": {key: {name: x * share for name, x in counts.items()} for key, counts in terms.items()},
        "num_tokens": scored.mask.sum().float().clamp(min=1.0) * share,
        "num_sequences": scored.mask.any(1).sum().float().clamp(min=1.0) * share,
        "num_sequences_all": torch.tensor(float(len(scored.mask)), device=scored.mask.device) * share,
    }


def replayed_loss(
    batch: Batch, positions: torch.Tensor, equation: Equation, tokens: dict[str, torch.Tensor], shape: torch.Size
) -> torch.Tensor:
    """Return the loss of a micro-batch, and add to `tokens` its gradient and what its parts log."""
    values = {name: getattr(batch, name) for name in LEAVES}
    leaves = {name: x.detach().clone().requires_grad_() for name, x in values.items() if x is not None}
    mask = batch.mask

    def keep(name: str, x: torch.Tensor) -> None:
        if isinstance(x, torch.Tensor) and x.dim() == 2:
            target = tokens.setdefault(name, torch.zeros(shape))
            target[positions, : mask.shape[1]] = x.detach().float().expand(mask.shape).where(mask, 0.0).cpu()

    batch = replace(batch, **leaves, log=keep)
    loss = objective(batch, equation)
    if loss.requires_grad:
        gradients = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        for name, gradient in zip(leaves, gradients, strict=True):
            if gradient is not None and name != "values":
                keep("gradient" if name == "logp" else f"{name}_gradient", -gradient)
    return loss.detach()


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
    if not batch.named_rewards or not weights:  # a recipe with a teacher and without rewards
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
