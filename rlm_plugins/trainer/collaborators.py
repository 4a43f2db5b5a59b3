"""Collaborators of the trainer, built in one direction: each receives those before it."""

from __future__ import annotations

from functools import partial
from typing import Any

from rlm_plugins.rollout.episodes import EpisodeRunner
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.trainer.context import DataNeeds, TrainerContext
from rlm_plugins.trainer.critic_update import CriticUpdate
from rlm_plugins.trainer.generation import PolicyGeneration
from rlm_plugins.trainer.loss import Loss
from rlm_plugins.trainer.loss_batches import LossBatches
from rlm_plugins.trainer.micro_batches import MicroBatches, StepMeans
from rlm_plugins.trainer.old_logprobs import OldLogProbs
from rlm_plugins.trainer.options import TrainerOptions
from rlm_plugins.trainer.part_state import CRITIC, PartStates
from rlm_plugins.trainer.part_tools import PartTools
from rlm_plugins.trainer.policy_drift import PolicyDrift
from rlm_plugins.trainer.prompts import Prompts, PromptTokens
from rlm_plugins.trainer.reward_prefetch import RewardPrefetch
from rlm_plugins.trainer.rewards import Rewards
from rlm_plugins.trainer.rollout import Rollout
from rlm_plugins.trainer.scoring import Scoring


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
        self.context = context = TrainerContext(
            trainer,
            args,
            trainer.accelerator,
            trainer._tokenizer,
            options.equation,
            options.rewards,
            DataNeeds(options.equation, args, stateful),
            learners,
            sampler,
            source_labels=collector.labels if collector else (),
            has_critic=options.critic is not None,
        )
        self.prompts = prompts = Prompts(context, options.order, source, trainer.train_dataset)

        eos_token_ids, processor = trainer.eos_token_ids, trainer.processing_class
        template = {"tools": trainer.tools or None, "chat_template": trainer.chat_template}
        template |= trainer.chat_template_kwargs
        self.tokens = PromptTokens(trainer._tokenize_prompts, trainer._tokenizer, processor, eos_token_ids, template)
        decoding = trainer.vllm_generation if args.use_vllm else trainer.generation_config
        generate_turn = partial(_call, trainer, "_generate_single_turn")  # looked up at each call
        self.generation = generation = PolicyGeneration(
            context, prompts, self.tokens, options.generator, decoding, generate_turn
        )
        runner = _episode_runner(trainer, options.environment_spec)
        self.rollout = rollout = Rollout(context, prompts, generation, eos_token_ids, collector, runner)

        is_single_turn = collector is None and not trainer.tools
        self.passes = passes = options.passes(context, partial(_call, trl, "_get_per_token_logps_and_entropies"))
        self.old_logprobs = old_logprobs = OldLogProbs(context, passes, generation, is_single_turn)
        self.drift = PolicyDrift(context, passes)
        self.critic = critic = CriticUpdate(context, passes, options.critic, trunk)

        self.rewards = rewards = Rewards(context, rollout, trainer.reward_weights, options.faults, options.log_faults)
        calls = trainer.reward_funcs, processor.batch_decode, partial(_reward_arguments, trainer)
        loop = getattr(trainer, "async_loop", None)  # TRL has one if a reward is asynchronous
        self.prefetch = RewardPrefetch(context, prompts, rollout, *calls, loop, is_single_turn)
        self.tools = PartTools(context, prompts, generation, passes, rewards, self.prefetch)
        scoring_inputs = prompts, rollout, old_logprobs, self.drift, critic, rewards, self.tools
        self.scoring = Scoring(context, *scoring_inputs, trainer._logs)

        aux_loss_coef = trainer.router_aux_loss_coef if trainer.aux_loss_enabled else None
        self.micro_batches = micro_batches = MicroBatches(context, passes, old_logprobs)
        means = StepMeans(context, passes)
        batches = LossBatches(context, rollout, passes, critic, means)
        schedules = options.schedules or {}
        self.loss = Loss(context, batches, passes, old_logprobs, critic, micro_batches, means, schedules, aux_loss_coef)

        observed = {x.name: x for x in options.observers if hasattr(x, "state_dict")}
        # "desk" and "past" are keys of the checkpoint format
        states = {"desk": source, "past": self.drift.cache, CRITIC: critic.optimizer, **observed}
        self.states = PartStates(stateful, states)


def _call(target: Any, method: str, *args: Any, **options: Any) -> Any:
    return getattr(target, method)(*args, **options)


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
