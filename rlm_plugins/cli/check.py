"""``rlm check``: everything a stage needs to run, as plain data, without loading weights.

:mod:`rlm_plugins.cli.check_report` renders it as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rlm_fast import kernel_choices
from rlm_fast.forecast import Forecast
from rlm_fast.speed_report import fast_path_lines, generation_lines
from rlm_fast.workload import machine_memory

from rlm_plugins.cli import objective_text
from rlm_plugins.cli.batch_plan import batch_plan
from rlm_plugins.cli.data_suppliers import data_of_parts
from rlm_plugins.cli.rollouts_report import dynamic_sampling, sources
from rlm_plugins.errors import RlmError
from rlm_plugins.hooks import HOOKS
from rlm_plugins.recipe.checks.part_rules import warnings_of
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.stage import Stage
from rlm_plugins.stage_settings import NO_SPEED
from rlm_plugins.trainer import setup

Entry = dict[str, Any]

_HOOKS = {hook.key: name for name, hook in HOOKS.items()}


def examine(stage: Stage, registry: Registry) -> Entry:
    """Return everything that ``rlm check`` reports on a stage.

    Args:
        stage: Composed, with its environment built.
        registry: Supplies the origin of its parts.

    Returns:
        ``name``; ``model`` (origin and license); ``parts`` (slot, name, plugin, origin, file); ``data`` (name,
        needed_by, supplied_by); ``batch`` (lines of text); ``objective`` and ``legend`` (symbol, meaning, part);
        ``speed`` (lines of text); ``memory`` (see `memory`); ``warnings`` (lines of text).
    """
    forecast = setup.forecast(stage)
    args = forecast.args
    examples = stage.environment_spec.train
    num_examples = len(examples) if hasattr(examples, "__len__") else None
    parts = list(_parts(stage, registry))
    return {
        "name": stage.name,
        "model": str(stage.source.notice()) if stage.source.notice is not None else stage.source.origin,
        "parts": [_part(slot, part, registry) for slot, part in parts],
        "data": list(data_of_parts(stage, parts)),
        "batch": [*batch_plan(args, num_examples, stage.settings).lines(), *_rollout_lines(stage, args)],
        **_objective(stage, dict(parts)["trainer"]),
        "speed": [*generation_lines(stage, args), *fast_path_lines(stage, args), *_kernel_lines(stage)],
        "memory": memory(forecast),
        "warnings": [
            *(warnings_of(vars(stage.equation)) if stage.equation is not None else ()),
            *_section_warnings(stage),
        ],
    }


def _kernel_lines(stage: Stage) -> list[str]:
    """Return the line on kernels chosen by measurement; none if the recipe turns all optimizations off."""
    return [] if stage.speed == NO_SPEED else [kernel_choices.line(stage)]


def _section_warnings(stage: Stage) -> list[str]:
    """Return the warnings of the sections that packages own."""
    parts: list[Any] = [part.target for part in stage.extensions.sections.values()]
    return [line for part in parts if hasattr(part, "warnings") for line in part.warnings(stage)]


def _rollout_lines(stage: Stage, args: Any) -> list[str]:
    """Return lines on the rollout sources and on dynamic sampling; empty for a supervised stage."""
    if stage.equation is None or not hasattr(args, "num_generations"):
        return []
    rounds = dynamic_sampling(stage.equation.filters, args.generation_batch_size)
    return [*sources(stage.rollouts, args.num_generations), *rounds]


def memory(forecast: Forecast) -> Entry:
    """Return the memory estimate in bytes, its load, and the memory of this machine.

    Returns:
        The fields of the estimate, with ``peak``, ``load``, ``decided`` and ``machine``; only ``problem`` if there is
        no estimate for the model.
    """
    try:
        load, estimate = forecast.load, forecast.memory
    except RlmError:
        raise
    except Exception as error:  # an unknown model type must not fail the check: a run does not need the estimate
        return {"problem": f"no estimate for this model: {type(error).__name__}: {error}"}
    facts = {"decided": forecast.checkpointing_decision(), "machine": machine_memory()}
    return {**asdict(estimate), "peak": estimate.peak, "load": asdict(load), **facts}


def _part(slot: str, part: Part, registry: Registry) -> Entry:
    origin = registry.plugins[part.plugin].origin
    return {"slot": slot, "name": part.name, "plugin": part.plugin, "origin": origin, "file": part.file}


def _objective(stage: Stage, trainer: Part) -> Entry:
    if stage.equation is None:
        return {"objective": f"that of its trainer: {objective_text.summary(trainer.target)}", "legend": []}
    rewards = " + ".join(f"{reward.weight:g} {reward.label}" for reward in stage.rewards)
    slots = vars(stage.equation)
    legend = [*objective_text.legend(slots), ("r", rewards, "")]
    return {"objective": objective_text.objective(slots), "legend": legend}


def _parts(stage: Stage, registry: Registry) -> Iterator[tuple[str, Part]]:
    """Yield recipe key and part of everything that the stage uses, in batch order."""
    algorithm = registry.find("rlm_algorithms", stage.body["algorithm"]["name"])
    trainer = registry.find("rlm_trainers", algorithm.target.trainer)
    used = [algorithm, trainer, *(bound.part for bound in stage.parts())]
    for key in ("environment", "model"):
        if name := (stage.body.get(key) or {}).get("name"):
            used.append(registry.find(_HOOKS[key], name))
    for hook, info in HOOKS.items():
        yield from ((info.key, part) for part in used if part.hook == hook)
