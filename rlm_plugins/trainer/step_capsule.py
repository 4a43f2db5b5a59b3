"""A recorded training step as a capsule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlm_plugins.capsule import Capsule
from rlm_plugins.capsule.tensor_tree import TreeEncoder, decode_tree
from rlm_plugins.capsule.token_text import text_of_tokens
from rlm_plugins.distributed import gather_lists, processes
from rlm_plugins.trainer.context import TrainerContext

SCORED = ("advantages", "mask", "returns", "rewards", "token_rewards", "expected_logp", "keep_mask")
"""Results of the scoring phase in a capsule."""


def capsule_of(
    context: TrainerContext,
    generation: Mapping[str, Any],
    update: dict[str, Any],
    snapshot: Mapping[str, Any],
    measured: Mapping[str, Any],
    fault: Mapping[str, str],
) -> Capsule:
    """Return a training step as a capsule; without a fault, all processes call it together.

    Args:
        context: Context that the collaborators share.
        generation: Record of the generation batch: `sampled`, `batch`, `is_shaped`, `scored`, `turns`, `calls`.
        update: Record of the loss phase of this process.
        snapshot: States and RNG at the start of the generation.
        measured: Scalars of the step: `generated_at`, `grad_norm`.
        fault: Fault that ended the step; the capsule then has the data of this process alone. Empty: no fault.
    """
    args = context.args
    scored, sampled, batch = (generation.get(name) for name in ("scored", "sampled", "batch"))
    is_fault, results = bool(fault), {name: getattr(scored, name, None) for name in SCORED}
    updates = [update] if is_fault else _gathered_updates(update)
    rows = batch.completion_ids if batch is not None and batch.completion_ids else None
    if rows is None:
        rows = [list(map(int, ids)) for ids in (sampled or {}).get("completion_ids", ())]
    capsule = Capsule(
        step=context.step + 1,
        stage="",
        processes=context.accelerator.num_processes,
        sampled=sampled if is_fault or sampled is None else _gathered(sampled),
        batch=batch and replace(batch, **dict.fromkeys(("logprobs_of", "generate", "rewards_of", "tokenizer", "log"))),
        is_shaped=generation.get("is_shaped", False),
        scored={name: x for name, x in results.items() if x is not None},
        calls=generation.get("calls", []),
        updates=updates,
        tokens=text_of_tokens(context.tokenizer, rows),
        turns=generation.get("turns", []) if is_fault else gather_lists(generation.get("turns", [])),
        measured={
            "accumulation": args.gradient_accumulation_steps,
            "steps_per_generation": args.steps_per_generation,
            **measured,
            "temperature": float(context.temperature),
        },
        fault=dict(fault),
    )
    capsule.states = snapshot.get("states", {})
    capsule.rng = {"step": snapshot.get("rng"), "scoring": generation.get("scoring_rng")}
    return capsule


def _gathered(sampled: Mapping[str, Any]) -> dict[str, Any]:
    return {name: gather_lists(list(rows)) for name, rows in sampled.items()}


def _gathered_updates(update: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the loss phase of every process; other processes receive tensors on the CPU."""
    if processes().num_processes == 1:
        return [update]
    encoder = TreeEncoder()
    tree = encoder.encode(update, "update")
    return [decode_tree(*encoded) for encoded in gather_lists([(tree, encoder.tensors)])]
