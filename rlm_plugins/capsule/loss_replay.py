"""The loss phase of a replay: micro-batches from a capsule, their loss, and its gradient in the log-probs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import torch

from rlm_plugins.batch import Batch
from rlm_plugins.capsule.storage import Capsule
from rlm_plugins.dispatch import select
from rlm_plugins.equation import Equation
from rlm_plugins.errors import RlmError
from rlm_plugins.loss_term import term_counts
from rlm_plugins.step import objective
from rlm_plugins.step_batch import build_step_batch

LEAVES = ("logp", "entropy", "values")
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
