"""Lines of ``rlm check`` on speed: the generator, and the fast paths of a stage with reasons for those that are off."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from rlm_fast.decoding_plans import decoding_plans
from rlm_fast.features import Feature
from rlm_fast.stage_features import StageFeatures
from rlm_plugins.errors import RlmError
from rlm_plugins.recipe.stage_sections import INSTALL, PACKAGE, REFERENCE
from rlm_plugins.stage import Stage
from rlm_plugins.stage_settings import NO_SPEED

TEXTS = {
    "padding_free": ("forward passes", "padding-free, each prompt once per group", "padded"),
    "fused_lora": ("LoRA in the update", "fused linear layers (float32, large ones)", "layers of PEFT"),
    "skip_zero_advantage": ("zero-advantage completions", "skipped in the update", "part of the update"),
    "group_micro_batches": ("micro-batches", "grouped by prompt, zero-advantage completions last", "shuffled by TRL"),
    "merge_micro_batches": ("micro-batch size", "", ""),
    "max_tokens_per_micro_batch": ("micro-batch size", "", "{size} completions, whatever their length"),
    "reuse_old_logprobs": ("old log-probs", "", "recomputed by a pass of their own"),
    "prefetch_rewards": ("rewards", "started during generation", "started after generation"),
}
"""Feature → subject, text if it is on, text if it is off."""


def fast_path_lines(stage: Stage, args: Any) -> list[str]:
    """Return one line per fast path that applies to a stage; none if the recipe turns all off.

    Args:
        stage: Composed.
        args: Config of the trainer.
    """
    if stage.equation is None or stage.speed == NO_SPEED:
        return []
    return [_line(feature, args) for feature in StageFeatures(stage, args)]


def _line(feature: Feature, args: Any) -> str:
    """Return ``subject: text, detail`` of a feature, or ``subject: text (reason)`` if it is off."""
    subject, on, off = TEXTS[feature.name]
    if feature.on:
        return f"{subject}: {', '.join(filter(None, (on, feature.detail)))}"
    return f"{subject}: {off.format(size=args.per_device_train_batch_size)} ({feature.reason})"


def generation_lines(stage: Stage, args: Any) -> list[str]:
    """Return a line on the generator and its fallback; none if the stage decodes nothing.

    Args:
        stage: Composed.
        args: Config of the trainer.
    """
    if stage.generator is None or not (hasattr(args, "num_generations") or stage.evaluation):
        return []
    name = stage.generator.part.name
    if getattr(args, "use_vllm", False):
        return ["generation: vLLM of TRL"]
    try:
        plans = decoding_plans(stage, args)
    except RlmError:
        raise
    except Exception as error:  # the meta device does not support every model
        return [
            f"generation: `{name}` or transformers, known at the start of the run ({type(error).__name__}: {error})"
        ]
    if name == REFERENCE and find_spec(PACKAGE.replace("-", "_")) is None:
        return [f"generation: `{name}` ({PACKAGE} is not installed; for the same samples in less time: {INSTALL})"]
    if plans and plans[0][0]:
        return [f"generation: transformers, not `{name}` ({plans[0][0]})"]
    return [
        f"generation: `{name}`" + (" (falls back to transformers if its start-up self-check fails)" if plans else "")
    ]
