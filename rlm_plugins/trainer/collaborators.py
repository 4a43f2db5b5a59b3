"""Collaborators of the trainer: what a stage configures, and one object that builds them in one direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rlm_plugins import stage_settings
from rlm_plugins.packing import Features
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.rewards.fault_log import FaultLog
from rlm_plugins.rollout.collector import RolloutCollector
from rlm_plugins.rollout.episodes import EpisodeRunner
from rlm_plugins.rollout.prompt_sampler import Order
from rlm_plugins.rollout.prompt_source import PromptSource
from rlm_plugins.schedule import Schedule
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.step import Equation
from rlm_plugins.trainer.context import TrainerContext
from rlm_plugins.trainer.critic_update import CriticUpdate
from rlm_plugins.trainer.generation import PolicyGeneration
from rlm_plugins.trainer.logprobs import LogProbs
from rlm_plugins.trainer.loss import Loss
from rlm_plugins.trainer.loss_batches import LossBatches
from rlm_plugins.trainer.micro_batches import MicroBatches, StepMeans
from rlm_plugins.trainer.old_logprobs import OldLogProbs
from rlm_plugins.trainer.overlapped_generation import OverlappedGeneration
from rlm_plugins.trainer.part_state import CRITIC, STALE, PartStates
from rlm_plugins.trainer.part_tools import PartTools
from rlm_plugins.trainer.policy_drift import PolicyDrift
from rlm_plugins.trainer.prompts import Prompts, PromptTokens
from rlm_plugins.trainer.reward_prefetch import RewardPrefetch
from rlm_plugins.trainer.rewards import LogFaults, Rewards
from rlm_plugins.trainer.rollout import Rollout
from rlm_plugins.trainer.scoring import Observer, Scoring
from rlm_plugins.trainer.stale_policy import StalePolicy
from rlm_plugins.trainer.step_recorder import StepRecorder
from rlm_plugins.trainer.target_kl import TargetKL


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
        speed: Optimizations that are switched on.
        schedules: Name → schedule of a knob, to be logged.
        faults: Failures that the rewards report; None: they raise.
        log_faults: Called with the samples on which rewards failed, of every process.
        observer: Called with the scored completions of this process: (step, prompts, completions, batch).
        capsule_every: Optimizer steps between capsules; 0: only at a fault.
    """

    equation: Equation
    rewards: Sequence[stage_settings.Reward]
    order: Order
    prompt_source: PromptSource | None = None
    collector: RolloutCollector | None = None
    environment_spec: EnvironmentSpec | None = None
    generator: Bound | None = None
    critic: stage_settings.Critic | None = None
    speed: stage_settings.Speed = stage_settings.NO_SPEED
    schedules: Mapping[str, Schedule] | None = None
    faults: FaultLog | None = None
    log_faults: LogFaults | None = None
    observer: Observer | None = None
    capsule_every: int = 0

    def with_rewards(self, names: Sequence[str]) -> TrainerOptions:
        """Return the options with entries for the rewards that TRL appended: those of its environments."""
        added = [Part("rlm_rewards", name, "trl", _of_environment).bind({}) for name in names[len(self.rewards) :]]
        return replace(self, rewards=[*self.rewards, *(stage_settings.Reward(part.part.name, part) for part in added)])


def _of_environment(completions: Any) -> Any:
    """Stand for a reward that TRL calls itself."""


class Collaborators:
    """Builds the collaborators of one trainer; each receives those before it.

    Args:
        trainer: The trainer, whose `__init__` TRL has run.
        trl: ``super()`` of the trainer: TRL's own methods.
        options: Arguments of the stage.
        trunk: Copy of the policy for a separate critic.
    """

    def __init__(self, trainer: Any, trl: Any, options: TrainerOptions, trunk: Any) -> None:
        source, collector, args = options.prompt_source, options.collector, trainer.args
        sources, sampler = collector.sources if collector else (), source.sampler if source else None
        learners = [*(reward.part for reward in options.rewards), *options.equation.parts(), *sources]
        stateful = [*learners, *([sampler] if sampler else [])]
        features = Features(
            options.speed,
            options.equation,
            args,
            sharded=bool(trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled),
            load_balancing=trainer.aux_loss_enabled,
            critic=options.critic is not None,
            learners=stateful,
        )
        shared = options.equation, options.rewards, features, learners, sampler
        self.context = context = TrainerContext(trainer, args, trainer.accelerator, trainer._tokenizer, *shared)
        self.recorder = recorder = StepRecorder(context, options.capsule_every, self._snapshot)
        self.prompts = prompts = Prompts(context, options.order, source, trainer.train_dataset)

        ends, processor = trainer.eos_token_ids, trainer.processing_class
        template = {"tools": trainer.tools or None, "chat_template": trainer.chat_template}
        template |= trainer.chat_template_kwargs
        self.tokens = PromptTokens(trainer._tokenize_prompts, trainer._tokenizer, processor, ends, template)
        decoding = trainer.vllm_generation if args.use_vllm else trainer.generation_config
        turn = partial(_call, trainer, "_generate_single_turn")  # looked up at each call
        self.generation = generation = PolicyGeneration(
            context, prompts, self.tokens, options.generator, decoding, turn
        )
        runner = _episode_runner(trainer, options.environment_spec)
        self.rollout = rollout = Rollout(context, prompts, generation, ends, collector, runner)

        is_single_turn = collector is None and not trainer.tools
        self.logprobs = logprobs = LogProbs(context, partial(_call, trl, "_get_per_token_logps_and_entropies"))
        self.old_logprobs = old_logprobs = OldLogProbs(context, logprobs, generation, recorder, is_single_turn)
        self.drift = PolicyDrift(context, logprobs)
        self.critic = critic = CriticUpdate(context, logprobs, options.critic, trunk)

        self.rewards = rewards = Rewards(
            context, rollout, trainer.reward_weights, options.faults, options.log_faults, recorder
        )
        calls = trainer.reward_funcs, processor.batch_decode, partial(_reward_arguments, trainer)
        loop = getattr(trainer, "async_loop", None)  # TRL has one if a reward is asynchronous
        self.prefetch = RewardPrefetch(context, prompts, rollout, *calls, loop, is_single_turn)
        self.tools = PartTools(context, prompts, generation, logprobs, rewards, self.prefetch, recorder)
        self.stale = StalePolicy(context, logprobs)
        self.overlapped = OverlappedGeneration(context, prompts, generation, ends, self.stale, lambda: trainer.state)
        before = prompts, rollout, old_logprobs, self.drift, critic, rewards, self.tools, self.stale
        self.scoring = Scoring(context, *before, recorder, trainer._logs, options.observer)

        self.target_kl = TargetKL(context)
        labels = collector.labels if collector else []
        aux_loss_coef = trainer.router_aux_loss_coef if trainer.aux_loss_enabled else None
        self.micro_batches = MicroBatches(context, logprobs, old_logprobs, recorder, labels)
        means = StepMeans(context)
        batches = LossBatches(context, rollout, logprobs, critic, means)
        passes = logprobs, old_logprobs, critic, self.micro_batches, self.target_kl, means, recorder
        self.loss = Loss(context, batches, *passes, options.schedules or {}, aux_loss_coef)
        stale = self.stale if self.stale.steps else None
        others = {"desk": source, "past": self.drift.cache, CRITIC: critic.optimizer, STALE: stale}
        self.states = PartStates(stateful, others)

    def _snapshot(self) -> dict[str, Any]:
        return self.states.snapshot_data()


def _call(owner: Any, method: str, *args: Any, **options: Any) -> Any:
    return getattr(owner, method)(*args, **options)


def _episode_runner(trainer: Any, spec: EnvironmentSpec | None) -> EpisodeRunner | None:
    if spec is None or not spec.multi_turn:
        return None
    return EpisodeRunner(
        spec,
        trainer._tokenizer,
        end_token_ids=trainer.eos_token_ids,
        max_completion_length=trainer.max_completion_length,
        max_length=getattr(trainer.model.config.get_text_config(), "max_position_embeddings", None),
        options=trainer.chat_template_kwargs,
    )


def _reward_arguments(trainer: Any) -> dict[str, Any]:
    """Return the arguments that TRL passes to rewards beside columns."""
    logs = {"log_extra": trainer._log_completion_extra, "log_metric": trainer._log_metric}
    arguments = {"trainer_state": trainer.state, **logs}
    return arguments if trainer.environments is None else {**arguments, "environments": trainer.environments}
