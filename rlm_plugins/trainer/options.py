"""Options of the trainer for a stage: prompts, rollout sources and logs that follow from its parts."""

from __future__ import annotations

import logging
from typing import Any

from rlm_plugins.hookspecs import HOOKS
from rlm_plugins.recipe.checks.part_rules import warnings_of
from rlm_plugins.rewards.fault_log import FaultLog
from rlm_plugins.rollout.collector import RolloutCollector
from rlm_plugins.rollout.prompt_sampler import order_of
from rlm_plugins.rollout.prompt_source import prompt_source_for
from rlm_plugins.schedule import named
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.collaborators import TrainerOptions

logger = logging.getLogger(__name__)


def options_of(stage: Stage, args: Any, data: Any, faults: FaultLog) -> TrainerOptions:
    """Return the options of :class:`rlm_plugins.trainer.EquationTrainer` for a stage.

    Args:
        stage: With an equation.
        args: Config of the trainer.
        data: Training examples; only those of known length can be sampled by index.
        faults: Log of failed rewards.
    """
    assert stage.equation is not None
    for warning in warnings_of(vars(stage.equation)):
        logger.warning("%s", warning)
    multi_turn = stage.environment_spec.multi_turn
    order, parts = order_of(stage.sampler, shuffle=args.shuffle_dataset), stage.equation.parts()
    source = None
    if hasattr(data, "__len__"):
        source = prompt_source_for(stage.sampler, parts, order, size=len(data), seed=args.seed)
    collector = RolloutCollector(stage.rollouts, args.num_generations, plays=multi_turn)
    return TrainerOptions(
        equation=stage.equation,
        rewards=stage.rewards,
        order=order,
        prompt_source=source,
        collector=collector if stage.rollouts or multi_turn else None,
        environment_spec=stage.environment_spec,
        generator=stage.generator,
        critic=stage.critic,
        speed=stage.speed,
        schedules=named((HOOKS[part.part.hook].key, part) for part in stage.parts()),
        faults=faults,
        log_faults=stage.log_faults,
        observer=stage.observer,
        capsule_every=stage.capsule.every,
    )
