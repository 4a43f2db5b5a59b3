"""``rlm check``: everything a stage needs to run, as plain data, without loading weights.

:mod:`rlm_plugins.cli.check_report` renders it as text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlm_plugins.cli import objective_text
from rlm_plugins.cli.batch_plan import batch_plan
from rlm_plugins.cli.data_suppliers import data_of_parts
from rlm_plugins.cli.rollouts_report import dynamic_sampling, sources
from rlm_plugins.hooks import HOOKS
from rlm_plugins.recipe.checks.part_needs import warnings_of
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Part
from rlm_plugins.stage import Stage
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
        ``warnings`` (lines of text); what each section of a package reports under its key, and as lines of text under
        ``sections``.
    """
    args = setup.arguments(stage)
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
        **_sections(stage, args),
        "warnings": [
            *(warnings_of(vars(stage.equation)) if stage.equation is not None else ()),
            *(line for section in stage.sections.values() for line in section.warnings(stage)),
        ],
    }


def _sections(stage: Stage, args: Any) -> Entry:
    """Return what the sections of packages report, by their keys, and as lines of text under ``sections``."""
    data: Entry = {}
    lines: dict[str, list[str]] = {}
    for key, section in stage.sections.items():
        data[key] = section.check_data(stage, args)
        lines[key] = list(section.check_lines(data[key]))
    return {**data, "sections": lines}


def _rollout_lines(stage: Stage, args: Any) -> list[str]:
    """Return lines on the rollout sources and on dynamic sampling; empty for a supervised stage."""
    if stage.equation is None or not hasattr(args, "num_generations"):
        return []
    rounds = dynamic_sampling(stage.equation.filters, args.generation_batch_size)
    return [*sources(stage.rollouts, args.num_generations), *rounds]


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
