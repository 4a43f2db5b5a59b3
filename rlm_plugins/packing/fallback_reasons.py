"""Why a short cut is not taken, in words: the trainer asks whether there is a reason, ``rlm check`` says which.

Here stands what follows from the recipe alone; what a model does not allow is in `fits` and `decodes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rlm_plugins.packing.regroup import counts_by_row, counts_by_step
from rlm_plugins.registry.part import Bound
from rlm_plugins.stage import Speed
from rlm_plugins.step import Equation

BALANCED = "the loss counts which experts every token takes (`router_aux_loss_coef`)"


def padded(speed: Speed, args: Any, *, sharded: bool, balanced: bool) -> str | None:
    """Why rows are read padded.

    Args:
        speed: As the recipe has it.
        args: The engine's config.
        sharded: Whether the weights are spread over processes.
        balanced: Whether the loss has a term for how a model uses its experts.
    """
    if not speed.padding_free:
        return "`speed.padding_free` is off"
    if args.cast_lm_head_to_fp32:
        return "`cast_lm_head_to_fp32` has a language head of its own"
    if sharded:
        return "the weights are spread over processes"
    return BALANCED if balanced else None


def apart(speed: Speed, args: Any, *, sharded: bool) -> str | None:
    """Why a LoRA layer computes as PEFT has it.

    Args:
        speed: As the recipe has it.
        args: The engine's config.
        sharded: Whether the weights are spread over processes.
    """
    if not speed.fused_lora:
        return "`speed.fused_lora` is off"
    if args.bf16 or args.fp16:
        return "products are made in half precision"
    if args.torch_compile:
        return "`torch_compile` makes the products"
    return "the weights are spread over processes" if sharded else None


def at_random(speed: Speed, equation: Equation, args: Any, *, packed: bool) -> str | None:
    """Why micro-batches stay as TRL deals them out.

    Args:
        speed: As the recipe has it.
        equation: The parts.
        args: The engine's config.
        packed: Whether their rows are read packed; else it would spare nothing, and dropout would hit other rows.
    """
    if not speed.group_micro_batches:
        return "`speed.group_micro_batches` is off"
    if not counts_by_step(equation):
        return "the loss is averaged over micro-batches"
    if args.steps_per_generation % args.gradient_accumulation_steps:
        return "an optimiser step spans generations"
    return None if packed else "they are read padded"


def by_number(speed: Speed, equation: Equation, args: Any) -> str | None:
    """Why micro-batches that are read packed have as many rows as the recipe says, whatever these weigh."""
    if speed.max_tokens_per_micro_batch is None and not (
        speed.merge_micro_batches and args.gradient_accumulation_steps > 1
    ):
        return "the recipe has no `token_budget`, and nothing is joined"
    if at_random(speed, equation, args, packed=True):
        return "they are dealt out at random"
    return None if counts_by_row(equation) else "a part looks at all those of a step"


def all_read(speed: Speed, args: Any, *, critic: bool) -> str | None:
    """Why the update reads rows that have no advantage, whatever the loss has of them.

    Args:
        speed: As the recipe has it.
        args: The engine's config.
        critic: Whether there is one.
    """
    if not speed.skip_zero_advantage:
        return "`speed.skip_zero_advantage` is off"
    if critic:
        return "the critic learns from them"
    return None if getattr(args, "target_kl", None) is None else "`target_kl` measures all rows"


def scores_by(name: str, equation: Equation, learners: Iterable[Bound]) -> bool:
    """Whether a part needs `name` in the scoring room, or to learn from.

    Args:
        name: Of the vocabulary of `batch.py`.
        equation: The parts.
        learners: Every part that may have a memory.
    """
    early = [*equation.shapers, *equation.filters, equation.advantage]
    return any(name in p.part.needs for p in early) or any(name in p.part.update_needs for p in learners)


def old_is_scored(equation: Equation, learners: Iterable[Bound]) -> bool:
    """Whether somebody asks what the policy was before the update reads anything; arguments as above."""
    learners = list(learners)
    return equation.needs("expected_logp") or any(
        scores_by(name, equation, learners) for name in ("old_logp", "policy_drift")
    )


def reads_old(args: Any) -> bool:
    """Whether TRL reads the old policy: else a generation is one optimiser step, or a part of it, and there is none."""
    return bool(args.gradient_accumulation_steps % (args.steps_per_generation * args.num_iterations))


def old_is_first(speed: Speed, args: Any) -> bool:
    """Whether the first pass of the update over a generation can say what the policy was before it.

    So it is where a generation is one optimiser step, taken several times.
    """
    once = args.steps_per_generation == args.gradient_accumulation_steps and args.num_iterations > 1
    return speed.reuse_old_logprobs and once and not args.use_vllm
