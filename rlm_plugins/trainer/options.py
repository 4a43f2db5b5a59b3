"""Options of the trainer for a stage: prompts, rollout sources and logs that follow from its parts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlm_plugins import stage_settings
from rlm_plugins.equation import Equation
from rlm_plugins.errors import RecipeError
from rlm_plugins.hooks import HOOKS
from rlm_plugins.recipe.checks.part_needs import warnings_of
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.registry.setting import Setting
from rlm_plugins.rewards.fault import FaultLog
from rlm_plugins.rollout.collector import RolloutCollector
from rlm_plugins.rollout.prompt_source import Order, PromptSource, order_of, prompt_source_for
from rlm_plugins.schedule import Schedule, schedules_by_name
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.stage import RunState, Stage
from rlm_plugins.trainer.observer import StepObserver
from rlm_plugins.trainer.passes import ForwardPasses, PassesFactory
from rlm_plugins.trainer.rewards import LogFaults

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainerOptions:
    """Arguments of a stage beside those of GRPOTrainer.

    Args:
        equation: The parts. `args.beta` only switches TRL's reference pass on; coefficients live in the parts.
        rewards: Entries of ``rewards:`` in the order of `reward_funcs`.
        order: (size, epoch, seed) → order in which an epoch visits the prompts.
        prompt_source: Chooses the prompts of each generation batch; None: the data loader does.
        collector: Assigns each completion to a rollout source; None: the policy generates all of them.
        environment_spec: Environment and tools; None: completions have one turn.
        generator: Decodes; None: `transformers.generate`.
        critic: ``critic:`` of the recipe; None: no part names values.
        passes: Builds the forward passes; the default are TRL's.
        schedules: Name → schedule of a knob, to be logged.
        faults: Failures that the rewards report; None: they raise.
        log_faults: Called with the samples on which rewards failed, of every process.
        observers: Observers of the training steps.
    """

    equation: Equation
    rewards: Sequence[stage_settings.Reward]
    order: Order
    prompt_source: PromptSource | None = None
    collector: RolloutCollector | None = None
    environment_spec: EnvironmentSpec | None = None
    generator: Bound | None = None
    critic: stage_settings.Critic | None = None
    passes: PassesFactory = ForwardPasses
    schedules: Mapping[str, Schedule] | None = None
    faults: FaultLog | None = None
    log_faults: LogFaults | None = None
    observers: Sequence[StepObserver] = ()

    def with_rewards(self, names: Sequence[str]) -> TrainerOptions:
        """Return the options with entries for the rewards that TRL appended: those of its environments."""
        added = [Part("rlm_rewards", name, "trl", _environment_reward).bind({}) for name in names[len(self.rewards) :]]
        return replace(self, rewards=[*self.rewards, *(stage_settings.Reward(part.part.name, part) for part in added)])


def _environment_reward(completions: Any) -> Any:
    """Placeholder of a reward that TRL calls itself."""


def options_of(stage: Stage, args: Any, data: Any, faults: FaultLog, run: RunState | None = None) -> TrainerOptions:
    """Return the options of :class:`rlm_plugins.trainer.EquationTrainer` for a stage.

    Args:
        stage: With an equation.
        args: Config of the trainer.
        data: Training examples; only those of known length can be sampled by index.
        faults: Log of failed rewards.
        run: The run that trains it; None: none.
    """
    run = run or RunState()
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
        critic=_scaled(stage.critic, run.rate_scale),
        passes=_passes(stage),
        schedules=schedules_by_name((HOOKS[part.part.hook].key, part) for part in stage.parts()),
        faults=faults,
        log_faults=run.log_faults,
        observers=[*observers_of_settings(args), *run.observers],
    )


def _passes(stage: Stage) -> PassesFactory:
    """Return the builder of the forward passes: that of the section which has one, else TRL's passes.

    Raises:
        RecipeError: Two sections have one.
    """
    builders = {key: section.passes for key, section in stage.sections.items() if section.passes is not None}
    if len(builders) > 1:
        problem = f"the sections {' and '.join(f'`{key}`' for key in builders)} both replace the forward passes"
        raise RecipeError(problem, where=f"stage '{stage.name}'", hint=f"`{min(builders)}: none`")
    return next(iter(builders.values()), ForwardPasses)


def observers_of_settings(args: Any) -> list[StepObserver]:
    """Return the observers that do what the settings of packages in a config say."""
    settings: Mapping[str, Setting] = getattr(args, "added", {})
    observers = [setting.observer(args) for setting in settings.values() if setting.observer is not None]
    return [observer for observer in observers if observer is not None]


def _scaled(critic: stage_settings.Critic | None, factor: float) -> stage_settings.Critic | None:
    """Return the settings of a critic with its learning rate multiplied, where it is a number."""
    if critic is None or not isinstance(critic.learning_rate, float):
        return critic
    return replace(critic, learning_rate=critic.learning_rate * factor)
