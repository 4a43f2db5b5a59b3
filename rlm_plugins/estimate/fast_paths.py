"""Which paths a stage will take, asked of its model on the meta device; the trials of the run have the last word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlm_plugins.estimate.meta_model import skeleton
from rlm_plugins.stage import Stage

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "cache_implementation")
"""What TRL takes over from its config into transformers'."""
_SPREAD = "the weights are spread over processes"


def padded_because(stage: Stage, args: Any) -> str | None:
    """Why rows will be read padded; None: they will not.

    Args:
        stage: With its source built.
        args: The engine's config.
    """
    from rlm_plugins.packing import fallback_reasons as reasons
    from rlm_plugins.packing.support import why_not

    said = reasons.padded(stage.speed, args, sharded=_is_sharded(args), balanced=is_balanced(stage, args))
    return said or why_not(skeleton(stage.source.config, stage.lora))


def is_balanced(stage: Stage, args: Any) -> bool:
    """Whether TRL adds a term to the loss for how a model uses its experts.

    Args:
        stage: With its source built.
        args: The engine's config.
    """
    config, said = stage.source.config.get_text_config(), args.router_aux_loss_coef
    weight = getattr(config, "router_aux_loss_coef", 0.0) if said is None else said
    return hasattr(config, "output_router_logits") and weight != 0


def drops(stage: Stage) -> bool:
    """Whether there is dropout while the policy learns.

    Args:
        stage: With its source built.
    """
    from rlm_plugins.packing.support import has_dropout

    return has_dropout(skeleton(stage.source.config, stage.lora))


def longest_packed(stage: Stage) -> int | None:
    """Longest row (tokens) that is read packed, where rows are; None: any.

    Args:
        stage: With its source built.
    """
    from rlm_plugins.packing.support import longest

    return longest(stage.source.config)


def fuses(stage: Stage) -> bool:
    """Whether some LoRA layer is what `speed.lora` computes.

    Args:
        stage: With its source built.
    """
    from peft.tuners.lora.layer import Linear

    from rlm_plugins.kernels.fused_lora import is_fusible

    layers = skeleton(stage.source.config, stage.lora).train().modules()
    return any(type(layer) is Linear and is_fusible(layer) for layer in layers)


def writing(stage: Stage, args: Any) -> list[tuple[str | None, int]]:
    """Of each way a stage writes: why transformers will instead of its generator, and the bytes that this holds.

    Args:
        stage: With its source and its generator.
        args: The engine's config.

    Returns:
        First how it writes what is learned from, last how it answers what it is judged by; empty where the generator
        has nothing to say beforehand.
    """
    dry_run = getattr(stage.generator.target, "dry_run", None) if stage.generator is not None else None
    if stage.generator is None or dry_run is None:
        return []
    model, knobs = skeleton(stage.source.config, stage.lora), stage.generator.knobs
    return [
        (_SPREAD, 0) if learns and _is_sharded(args) else dry_run(model.train(learns), config, **knobs)
        for learns, config in _ways(stage, args)
    ]


def _is_sharded(args: Any) -> bool:
    return bool(args.fsdp or args.deepspeed)


def _ways(stage: Stage, args: Any) -> Iterator[tuple[bool, Any]]:
    """Whether the model is being trained meanwhile, and transformers' GenerationConfig."""
    from transformers import GenerationConfig

    ends = {"eos_token_id": 0, "pad_token_id": 0, "disable_compile": True}
    if hasattr(args, "num_generations"):
        said = {"max_new_tokens": args.max_completion_length, "do_sample": True}
        said |= {name: getattr(args, name) for name in _SAMPLING} | (args.generation_kwargs or {})
        yield True, GenerationConfig(**{**ends, **said})
    if stage.evaluation is not None:
        yield False, GenerationConfig(max_new_tokens=1, do_sample=False, **ends)
