"""Decoding of a stage, dry-run on the meta device: fallbacks to transformers and bytes of copied weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlm_fast.features import SHARDED
from rlm_plugins.models.scratch import skeleton
from rlm_plugins.stage import Stage
from rlm_plugins.workers.distributed import sharding

_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "cache_implementation")
"""Fields that TRL copies from its config to the `GenerationConfig` of transformers."""


def decoding_plans(stage: Stage, args: Any) -> list[tuple[str | None, int]]:
    """Return why a generator falls back to transformers, or None, and the bytes of its copies, per way of decoding.

    Args:
        stage: With its model specification and generator.
        args: Config of the trainer.

    Returns:
        Training first, evaluation last; empty if the generator has no `dry_run`.
    """
    dry_run = getattr(stage.generator.target, "dry_run", None) if stage.generator is not None else None
    if stage.generator is None or dry_run is None:
        return []
    model, knobs = skeleton(stage.source.config, stage.lora), stage.generator.knobs
    plans = []
    # Train and eval mode may differ: dropout makes the generator fall back.
    for is_training, config in _generation_configs(stage, args):
        sharded = is_training and sharding(args)
        plans.append((SHARDED, 0) if sharded else dry_run(model.train(is_training), config, **knobs))
    return plans


def _generation_configs(stage: Stage, args: Any) -> Iterator[tuple[bool, Any]]:
    """Yield (True for training, `GenerationConfig`) of each way in which a stage decodes."""
    from transformers import GenerationConfig

    # transformers turns `use_cache` off in the config of a model that is trained, and decodes with the cache
    tokens_and_cache = {"eos_token_id": 0, "pad_token_id": 0, "disable_compile": True, "use_cache": True}
    if hasattr(args, "num_generations"):
        options = {"max_new_tokens": args.max_completion_length, "do_sample": True}
        options |= {name: getattr(args, name) for name in _SAMPLING} | (args.generation_kwargs or {})
        yield True, GenerationConfig(**{**tokens_and_cache, **options})
    if stage.evaluation is not None:
        yield False, GenerationConfig(max_new_tokens=stage.longest_completion, do_sample=False, **tokens_and_cache)
