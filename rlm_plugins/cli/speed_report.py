"""Which short cuts a stage takes, and why it does not take the others: told by ``rlm check``.

The reasons are those of the trainer (`rlm_plugins.packing.fallback_reasons`) and of what is known of the model
(`estimate.paths`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from rlm_plugins.errors import RlmError
from rlm_plugins.estimate.fast_paths import drops, fuses, longest_packed, padded_because, writing
from rlm_plugins.estimate.micro_batch import joined_tokens
from rlm_plugins.packing import fallback_reasons as reasons
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.stage import NO_SPEED, Stage
from rlm_plugins.step import Equation


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
        _read(stage, padded),
        *_fuse(stage, args),
        _skip(stage, stage.equation, args, padded),
        _regroup(stage, stage.equation, args, padded),
        *_budget(stage, stage.equation, args, padded),
        *_reuse(stage, stage.equation, args),
        *_overlap(stage),
    ]


def writer(stage: Stage, args: Any) -> list[str]:
    """Who writes the rows, and why it is not the generator of the recipe; nothing where nobody writes.

    Args:
        stage: Composed.
        args: The engine's config.
    """
    if stage.generator is None or not (hasattr(args, "num_generations") or stage.evaluation):
        return []
    name = stage.generator.part.name
    if getattr(args, "use_vllm", False):
        return ["rows are written by TRL's vLLM"]
    try:
        foreseen = writing(stage, args)
    except RlmError:
        raise
    except Exception as error:  # a model of a kind that this has never heard of
        return [f"rows are written by {name} or by transformers: nobody can tell yet ({type(error).__name__}: {error})"]
    if foreseen and foreseen[0][0]:
        return [f"rows are written by transformers, not by {name}: {foreseen[0][0]}"]
    return [f"rows are written by {name}" + (", unless its trial at the start of the run fails" if foreseen else "")]


def _read(stage: Stage, padded: str | None) -> str:
    if padded:
        return f"rows are read padded: {padded}"
    most = longest_packed(stage)
    told = "rows are read without padding, each prompt once for its group"
    return told if most is None else f"{told}, in batches no wider than {most} tokens; wider ones are read padded"


def _fuse(stage: Stage, args: Any) -> list[str]:
    """Nothing where there is no LoRA."""
    if stage.lora is None:
        return []
    odd = [name for name in ("lora_dropout", "use_dora", "lora_bias") if stage.lora.get(name)]
    reason = reasons.apart(stage.speed, args, sharded=False)
    if reason is None and not fuses(stage):
        reason = f"`{odd[0]}` makes it more than a product" if odd else "none of its layers is plain, in float32"
    if reason:
        return [f"LoRA stays beside its base in the update: {reason}"]
    return ["LoRA is added to its base within a product in the update, where that is large and in float32"]


def _skip(stage: Stage, equation: Equation, args: Any, padded: str | None) -> str:
    labels = [source.beside.get("as") or source.part.name for source in stage.rollouts]
    reason = reasons.all_read(stage.speed, args, critic=stage.critic is not None)
    if reason := reason or ("they are read padded" if padded else _who_sees(equation, labels)):
        return f"rows without advantage are read by the update: {reason}"
    return "rows without advantage are left out of the update: no term has a gradient there"


def _who_sees(equation: Equation, labels: list[str]) -> str | None:
    """Who learns from rows without advantage; None: nobody."""
    from rlm_plugins.packing.zero_advantage import silent

    if silent(equation, 0, labels):
        return None
    terms = [term for term in equation.penalties if not silent(replace(equation, penalties=[term]), 0, labels)]
    return f"{', '.join(term.part.name for term in terms) or 'the policy loss, or a statistic over rows,'} sees them"


def _reuse(stage: Stage, equation: Equation, args: Any) -> list[str]:
    """Nothing where there is no old policy."""
    scored = reasons.old_is_scored(equation, stage.parts())
    if not stage.speed.reuse_old_logprobs or not (scored or reasons.reads_old(args)):
        return []
    if args.use_vllm:
        return ["the old policy is read by a pass of its own: vLLM's numbers are not the policy's"]
    if reasons.old_is_first(stage.speed, args) and not scored:
        if drops(stage):
            return ["the old policy is read by a pass of its own: dropout is on, and would hit other numbers"]
        return ["the old policy is what the first pass over a generation says"]
    if _tells(stage, args) and not stage.rollouts and not args.bf16 and not args.fp16:
        where = "if the weights are float32 and a row is read the same wherever it stands"
        return [f"the old policy is what was thought while writing, {where}; else a pass reads it"]
    why = "a part scores by it" if scored else "a generation is more than one optimiser step"
    return [f"the old policy is read by a pass of its own: {why}"]


def _tells(stage: Stage, args: Any) -> bool:
    """Whether the generator says what was thought while it wrote, as far as anybody knows."""
    part = stage.generator.part if stage.generator is not None else None
    if part is None or "return_logprobs" not in (*part.needs, *part.welcomes):
        return False
    with suppress(Exception):  # `writer` says what is wrong
        return not any(reason for reason, _ in writing(stage, args)[:1])
    return True


def _overlap(stage: Stage) -> list[str]:
    """Nothing where every reward is waited for."""
    early = [reward.label for reward in stage.rewards if hasattr(trl_reward(reward), "begin")]
    if not early:
        return []
    if not stage.speed.prefetch_rewards:
        return [f"{', '.join(early)}: asked when everything has been read, since `speed.prefetch_rewards` is off"]
    return [f"{', '.join(early)}: asked while the model still writes and reads"]


def _regroup(stage: Stage, equation: Equation, args: Any, padded: str | None) -> str:
    if reason := reasons.at_random(stage.speed, equation, args, packed=padded is None):
        return f"micro-batches are dealt out at random: {reason}"
    return "micro-batches are dealt out group by group, rows without advantage last"


def _budget(stage: Stage, equation: Equation, args: Any, padded: str | None) -> list[str]:
    """How large micro-batches become; nothing where they are as large as the recipe says."""
    if (budget := stage.speed.max_tokens_per_micro_batch) is None:
        if padded or reasons.by_number(stage.speed, equation, args):
            return []
        most = joined_tokens(stage)
        told = f"micro-batches are read together up to {most:.0f} tokens: the model is small"
        return [told] if most >= 2 * args.per_device_train_batch_size else []  # else there are no two that fit
    rows = args.per_device_train_batch_size
    reason = reasons.by_number(stage.speed, equation, args)
    if reason := reason or ("they are read padded" if padded else None):
        return [f"micro-batches have {rows} rows each, whatever they weigh: {reason}"]
    size = f"{rows} rows of full length" if budget == "auto" else str(budget)
    return [f"micro-batches hold as many tokens as {size}, a prompt counted once"]
