"""Lines of ``rlm check`` on speed: the generator, and the fast paths of a stage with reasons for those that are off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from transformers import TrainerCallback

from rlm_fast.features import Feature, StageFeatures, decoding_plans, speed_of
from rlm_fast.speed import NO_SPEED
from rlm_plugins.errors import RlmError
from rlm_plugins.report.text_layout import columns
from rlm_plugins.stage import Stage

TEXTS = {
    "padding_free": ("forward passes", "padding-free, each prompt once per group", "padded"),
    "fused_lora": ("LoRA in the update", "fused linear layers (large ones)", "layers of PEFT"),
    "skip_zero_advantage": ("zero-advantage completions", "skipped in the update", "part of the update"),
    "group_micro_batches": ("micro-batches", "grouped by prompt, zero-advantage completions last", "shuffled by TRL"),
    "merge_micro_batches": ("micro-batch size", "", ""),
    "max_tokens_per_micro_batch": ("micro-batch size", "", "{size} completions, whatever their length"),
    "reuse_old_logprobs": ("old log-probs", "", "recomputed by a pass of their own"),
}
"""Feature → subject, text if it is on, text if it is off."""


def fast_path_lines(stage: Stage, args: Any) -> list[str]:
    """Return one line per fast path that applies to a stage; none if the recipe turns all off."""
    if stage.equation is None or speed_of(stage) == NO_SPEED:
        return []
    return [_line(feature, args) for feature in StageFeatures(stage, args)]


def _line(feature: Feature, args: Any) -> str:
    """Return ``subject: text, detail`` of a feature, or ``subject: text (reason)`` if it is off."""
    subject, on, off = TEXTS[feature.name]
    if feature.on:
        return f"{subject}: {', '.join(filter(None, (on, feature.detail)))}"
    return f"{subject}: {off.format(size=args.per_device_train_batch_size)} ({feature.reason})"


def generation_lines(stage: Stage, args: Any) -> list[str]:
    """Return a line on the generator and its fallback; none if the stage decodes nothing."""
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
    if plans and plans[0][0]:
        return [f"generation: transformers, not `{name}` ({plans[0][0]})"]
    return [
        f"generation: `{name}`" + (" (falls back to transformers if its start-up self-check fails)" if plans else "")
    ]


class FastPathLine(TrainerCallback):  # type: ignore[misc]
    """Prints one line at the start of a stage: the fast paths that are on, and why others are off."""

    def __init__(self, stage: Stage, console: Console) -> None:
        self._stage, self._console = stage, console

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._stage.equation is None:
            return
        try:
            line = fast_path_line(self._stage, args)
        except Exception as error:  # the meta device does not support every model
            line = f"fast paths: decided during the run ({type(error).__name__})"
        self._console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def fast_path_line(stage: Stage, args: Any) -> str:
    """Return ``fast paths: …; off: …`` of a stage."""
    reasons: dict[str, str | None] = {}
    if stage.generator is not None:
        plans = decoding_plans(stage, args)[:1]
        reasons |= {f"generator {stage.generator.part.name}": reason for reason, _ in plans}
    if speed_of(stage) != NO_SPEED:
        reasons |= {feature.name: feature.reason for feature in StageFeatures(stage, args)}
    enabled = [name for name, reason in reasons.items() if not reason]
    disabled = [f"{name} ({reason})" for name, reason in reasons.items() if reason]
    return f"fast paths: {', '.join(enabled) or 'none'}" + (f"; off: {', '.join(disabled)}" if disabled else "")


def size(count: float) -> str:
    """Return a number of bytes with a binary unit.

    >>> size(3 * 2**30), size(1_500_000), size(12)
    ('3.0 GiB', '1.4 MiB', '12 B')
    """
    for unit, unit_bytes in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= unit_bytes:
            return f"{count / unit_bytes:.1f} {unit}"
    return f"{count:.0f} B"


def peak(memory: Mapping[str, Any]) -> str:
    """Return the largest memory of a stage beside that of this machine; the problem if there is no estimate."""
    if "problem" in memory:
        return str(memory["problem"])
    each = " per process" if memory["load"]["processes"] > 1 else ""
    return f"about {size(memory['peak'])}{each} of this machine's {size(memory['machine'])}"


def memory_lines(memory: Mapping[str, Any]) -> list[str]:
    """Return the lines of ``rlm check`` on memory."""
    if "problem" in memory:
        return [memory["problem"]]
    load = memory["load"]
    terms: list[tuple[str, ...]] = []
    for when in ("always", "generation", "update", "critic_update"):
        nonzero = [(name, size(count)) for name, count in memory[when].items() if count]
        terms += [("" if i else when, *term) for i, term in enumerate(nonzero)]
    return [
        f"{memory['parameters']:,} parameters, {memory['trained']:,} of them trained",
        f"prompts up to {load['prompt_len']} tokens, completions up to {load['completion_len']}; "
        f"{load['generated']} completions decoded at once, micro-batches of {load['micro_batch_size']}",
        *columns(terms, indent="").splitlines(),
        f"peak: {peak(memory)} (always + the largest of the other phases)",
        *([memory["decided"]] if memory["decided"] else []),
    ]
