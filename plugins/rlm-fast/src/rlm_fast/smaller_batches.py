"""Settings that need less memory, with the estimate of each: advice, and the next attempt, when memory runs out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from rlm_fast.forecast import KEY, Forecast
from rlm_fast.speed_report import size
from rlm_plugins.run.failures import is_in_generation
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.options import arguments


def halved(stage: Stage) -> Stage | None:
    """Return the stage with smaller micro-batches in the same optimizer steps; None if they hold one sequence."""
    args = arguments(stage)
    count = args.per_device_train_batch_size
    divisor = next((n for n in range(2, count + 1) if count % n == 0), None)
    if divisor is None:
        return None
    changes = {"per_device_train_batch_size": count // divisor}
    changes["gradient_accumulation_steps"] = args.gradient_accumulation_steps * divisor
    if hasattr(args, "steps_per_generation") and "generation_batch_size" not in stage.settings:
        changes["steps_per_generation"] = args.steps_per_generation * divisor
    return _with(stage, changes)


def smaller(stage: Stage, error: Exception) -> Iterator[str]:
    """Yield a line for each setting that lowers the memory of the phase in which it ran out."""
    before = _estimate(stage)
    yield f"rlm check estimates {before} for this stage; to lower it:"
    for changes in _proposals(stage, is_in_generation(error)):
        other = _with(stage, changes)
        text = ", ".join(f"trainer.{name}={value}" for name, value in changes.items())
        yield f"{text}  ({_estimate(other)})"
    if not is_in_generation(error) and halved(stage) is not None:
        yield "`memory: {on_oom: halve}` does the first of these by itself"


def _proposals(stage: Stage, generates: bool) -> Iterator[Mapping[str, Any]]:
    args, other = arguments(stage), halved(stage)
    if not generates and other is not None:
        yield {name: value for name, value in other.settings.items() if stage.settings.get(name) != value}
    if generates and args.steps_per_generation > 1 and args.steps_per_generation % 2 == 0:
        yield {"steps_per_generation": args.steps_per_generation // 2}
    if not generates and not getattr(args, KEY, True):
        yield {KEY: True}
    if (length := getattr(args, "max_completion_length", None)) and length > 1:
        yield {"max_completion_length": length // 2}


def _with(stage: Stage, changes: Mapping[str, Any]) -> Stage:
    return replace(stage, settings={**stage.settings, **changes})


def _estimate(stage: Stage) -> str:
    try:
        return f"about {size(Forecast(stage, arguments(stage)).memory.peak)}"
    except Exception:  # the estimate does not cover every model, and settings may exclude each other
        return "no estimate"
