"""Which short cuts a stage takes, and why it does not take the others: told by ``rlm check``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlm_plugins.commands.shapes import skeleton
from rlm_plugins.speed.sizes import PRODUCTS
from rlm_plugins.stage import NO_SPEED, Stage
from rlm_plugins.step import Equation
from rlm_plugins.training.judge import trl_reward


def shortcuts(stage: Stage, args: Any) -> list[str]:
    """One line each; none where a recipe asks for none.

    Args:
        stage: Composed.
        args: The engine's config.
    """
    if stage.equation is None or stage.speed == NO_SPEED:
        return []
    padded = padded_because(stage, args)
    return [
        f"rows are read padded: {padded}"
        if padded
        else "rows are read without padding, each prompt once for its group",
        _skip(stage, stage.equation, padded),
        _regroup(stage, stage.equation, args),
        *_budget(stage, args, padded),
        *_reuse(stage, args),
        *_overlap(stage),
    ]


def padded_because(stage: Stage, args: Any) -> str | None:
    """What can be known before the weights are there; the trial at the start of a run has the last word."""
    if not stage.speed.packed:
        return "`speed.packed` is off"
    if args.cast_lm_head_to_fp32:
        return "`cast_lm_head_to_fp32` has a language head of its own"
    if (stage.lora or {}).get("lora_dropout"):
        return "`lora_dropout` is on, and which tokens it hits depends on the padding"
    import torch
    from transformers import AutoModelForCausalLM

    from rlm_plugins.speed.fits import why_not

    with torch.device("meta"):
        return why_not(AutoModelForCausalLM.from_config(stage.source.config))


def _skip(stage: Stage, equation: Equation, padded: str | None) -> str:
    labels = [source.beside.get("as") or source.part.name for source in stage.rollouts]
    reasons = {
        "`speed.skip` is off": not stage.speed.skip,
        "they are read padded": padded is not None,
        "the critic learns from them": stage.critic is not None,
        "`target_kl` measures all rows": stage.settings.get("target_kl") is not None,
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), _who_sees(equation, labels)):
        return f"rows without advantage are read by the update: {reason}"
    return "rows without advantage are left out of the update: no term has a gradient there"


def _who_sees(equation: Equation, labels: list[str]) -> str | None:
    """Who learns from rows without advantage; None: nobody."""
    from rlm_plugins.speed.silent import silent

    if silent(equation, 0, labels):
        return None
    terms = [term for term in equation.penalties if not silent(replace(equation, penalties=[term]), 0, labels)]
    return f"{', '.join(term.part.name for term in terms) or 'the policy loss, or a statistic over rows,'} sees them"


def _reuse(stage: Stage, args: Any) -> list[str]:
    """Nothing where a generation is one optimiser step, or a part of it: then there is no old policy."""
    every = args.steps_per_generation * args.num_iterations
    if not stage.speed.reuse or args.gradient_accumulation_steps % every == 0:
        return []
    if args.use_vllm:
        return ["the old policy is read by a pass of its own: vLLM's numbers are not the policy's"]
    if args.steps_per_generation == args.gradient_accumulation_steps:
        return [
            "the old policy is what the first pass over a generation says, unless a scoring part asks for it earlier"
        ]
    tells = stage.generator is not None and "tell" in (*stage.generator.part.needs, *stage.generator.part.welcomes)
    if tells and not stage.rollouts and not args.bf16 and not args.fp16:
        where = "if the weights are float32 and a row is read the same wherever it stands"
        return [f"the old policy is what was thought while writing, {where}; else a pass reads it"]
    return ["the old policy is read by a pass of its own: a generation is more than one optimiser step"]


def _overlap(stage: Stage) -> list[str]:
    """Nothing where every reward is waited for."""
    early = [reward.label for reward in stage.rewards if hasattr(trl_reward(reward), "begin")]
    if not early:
        return []
    if not stage.speed.overlap:
        return [f"{', '.join(early)}: asked when everything has been read, since `speed.overlap` is off"]
    return [f"{', '.join(early)}: asked while the model still writes and reads"]


def deals(stage: Stage, args: Any) -> bool:
    """Whether micro-batches are dealt out anew."""
    return stage.equation is not None and _at_random(stage, stage.equation, args) is None


def weighs(stage: Stage, args: Any) -> bool:
    """Whether micro-batches are as large as a budget of tokens, where they are dealt out anew and read packed."""
    from rlm_plugins.speed.regroup import counts_by_row

    wanted = stage.speed.token_budget is not None or stage.speed.join
    return wanted and stage.equation is not None and counts_by_row(stage.equation)


def joins(stage: Stage, args: Any) -> float | None:
    """Most tokens of micro-batches that are read together; None where a budget says, or two never fit."""
    if stage.speed.token_budget is not None or not stage.speed.join or args.gradient_accumulation_steps == 1:
        return None
    most = PRODUCTS / sum(x.numel() for x in skeleton(stage.source.config, stage.lora).parameters())
    return most if most >= 2 * args.per_device_train_batch_size else None


def _at_random(stage: Stage, equation: Equation, args: Any) -> str | None:
    """Why micro-batches stay as TRL deals them out."""
    from rlm_plugins.speed.regroup import counts_by_step

    if not stage.speed.regroup:
        return "`speed.regroup` is off"
    if not counts_by_step(equation):
        return "the loss is averaged over micro-batches"
    if args.steps_per_generation % args.gradient_accumulation_steps:
        return "an optimiser step spans generations"
    return None


def _regroup(stage: Stage, equation: Equation, args: Any) -> str:
    if reason := _at_random(stage, equation, args):
        return f"micro-batches are dealt out at random: {reason}"
    return "micro-batches are dealt out group by group, rows without advantage last"


def _budget(stage: Stage, args: Any, padded: str | None) -> list[str]:
    """How large micro-batches become; nothing where they are as large as the recipe says."""
    if (budget := stage.speed.token_budget) is None:
        most = joins(stage, args) if padded is None and deals(stage, args) and weighs(stage, args) else None
        return [] if most is None else [f"micro-batches are read together up to {most:.0f} tokens: the model is small"]
    rows = args.per_device_train_batch_size
    reasons = {
        "they are dealt out at random": not deals(stage, args),
        "they are read padded": padded is not None,
        "a part looks at all those of a step": not weighs(stage, args),
    }
    if reason := next((reason for reason, holds in reasons.items() if holds), None):
        return [f"micro-batches have {rows} rows each, whatever they weigh: {reason}"]
    size = f"{rows} rows of full length" if budget == "auto" else str(budget)
    return [f"micro-batches hold as many tokens as {size}, a prompt counted once"]
