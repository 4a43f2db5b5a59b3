"""Trainer of the equation: its collaborators, and every override of TRL's GRPOTrainer in the order of TRL's calls."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from trl import GRPOTrainer

from rlm_plugins.durable import stop_signals
from rlm_plugins.durable.files import publish_sealed
from rlm_plugins.equation.equation import Equation
from rlm_plugins.equation.step import nonfinite_logits
from rlm_plugins.errors import RlmError
from rlm_plugins.models.adapters import without_auxiliary
from rlm_plugins.models.critic import Critic
from rlm_plugins.rollout.chat_tokens import Fork
from rlm_plugins.rollout.episodes import EpisodeRunner
from rlm_plugins.rollout.prompt_source import PromptSampler
from rlm_plugins.specs import EnvironmentSpec
from rlm_plugins.trainer.checkpoint import CRITIC, PartStates, saving
from rlm_plugins.trainer.context import DataNeeds, TrainerContext
from rlm_plugins.trainer.critic_update import CriticUpdate, trunk_of
from rlm_plugins.trainer.engine import in_place_of_vllm
from rlm_plugins.trainer.generation import Completions, PolicyGeneration, Prompts, PromptTokens
from rlm_plugins.trainer.loss import Loss, LossBatches, MicroBatches, StepMeans
from rlm_plugins.trainer.observer import ObservedSteps, StepObserver
from rlm_plugins.trainer.passes import ForwardPasses, FusedHead, LogpsAndEntropies, OldLogProbs
from rlm_plugins.trainer.rewards import RewardPrefetch, Rewards
from rlm_plugins.trainer.rollout import Rollout
from rlm_plugins.trainer.scoring import PartTools, Scoring

if TYPE_CHECKING:
    from rlm_plugins.trainer.options import TrainerOptions


class Collaborators:
    """Builds the collaborators of one trainer; each receives those before it."""

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
        self.replaces_forward = _is_overridden(trainer, _FORWARD)
        if self.replaces_forward:  # by a subclass, whose method is called wherever TRL calls it
            if options.passes is not ForwardPasses:
                _LOG.warning("forward passes are padded: %s overrides `%s`", type(trainer).__name__, _FORWARD)
            self.passes = passes = ForwardPasses(context, partial(_call, trainer, _FORWARD))
        else:
            self.passes = passes = options.passes(context, partial(_call, trl, _FORWARD))
        self.old_logprobs = old_logprobs = OldLogProbs(context, passes, generation, is_single_turn)
        self.critic = critic = CriticUpdate(context, passes, options.critic, trunk)

        self.rewards = rewards = Rewards(context, rollout, trainer.reward_weights, options.faults, options.log_faults)
        calls = trainer.reward_funcs, processor.batch_decode, partial(_reward_arguments, trainer)
        loop = getattr(trainer, "async_loop", None)  # TRL has one if a reward is asynchronous
        self.prefetch = RewardPrefetch(context, prompts, rollout, *calls, loop, is_single_turn)
        self.tools = PartTools(context, prompts, generation, passes, rewards, self.prefetch)
        scoring_inputs = prompts, rollout, old_logprobs, critic, rewards, self.tools
        self.scoring = Scoring(context, *scoring_inputs, trainer._logs)

        aux_loss_coef = trainer.router_aux_loss_coef if trainer.aux_loss_enabled else None
        self.micro_batches = micro_batches = MicroBatches(context, passes, old_logprobs)
        means = StepMeans(context)
        batches = LossBatches(context, rollout, passes, critic, means)
        schedules = options.schedules or {}
        self.loss = Loss(context, batches, passes, old_logprobs, critic, micro_batches, means, schedules, aux_loss_coef)

        observed = {x.name: x for x in options.observers if hasattr(x, "state_dict")}
        # "desk" is a key of the checkpoint format
        states = {"desk": source, CRITIC: critic.optimizer, **observed}
        self.states = PartStates(stateful, states)


_LOG = logging.getLogger(__name__)
_FORWARD = "_get_per_token_logps_and_entropies"
_NOT_CALLED = {
    "get_high_entropy_mask": "token_weights",
    "get_off_policy_mask": "token_weights",
    "get_gamma_weights": "policy_loss",
}
"""Methods of TRL's loss that the parts of a slot replace: method → slot."""


def _is_overridden(trainer: Any, method: str) -> bool:
    return getattr(type(trainer), method) is not getattr(EquationTrainer, method)


def _refuse_unused_overrides(trainer: Any) -> None:
    """Check that every method of TRL that a subclass overrides is called; a slot of the algorithm replaces some."""
    unused = [] if _is_overridden(trainer, "_compute_loss") else list(_NOT_CALLED)
    for method in (method for method in unused if _is_overridden(trainer, method)):
        where, slot = f"{type(trainer).__name__}.{method}", _NOT_CALLED[method]
        hint = f"pass a function: `algorithm={{'{slot}': …}}`, or override `_compute_loss`"
        raise RlmError(f"would never be called: the slot `{slot}` replaces it", where=where, hint=hint)


def _call(target: Any, method: str, *args: Any, **options: Any) -> Any:
    return getattr(target, method)(*args, **options)


def _observers_of_parts(equation: Equation) -> list[StepObserver]:
    """Return the observers that parts need, one of each name."""
    observers = [part.target.observer() for part in equation.parts() if hasattr(part.target, "observer")]
    return list({observer.name: observer for observer in observers}.values())


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


class EquationTrainer(ObservedSteps, GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose advantage and loss are the parts of an :class:`rlm_plugins.equation.equation.Equation`.

    Attributes:
        components: Collaborators that the overrides call.
        equation: Parts of the algorithm.
    """

    _name = "rlm"
    _tag_names: tuple[str, ...] = ("trl", "rlm-plugins")
    _buffered_inputs: Any

    def __init__(self, options: TrainerOptions, **trl: Any) -> None:
        _refuse_unused_overrides(self)
        options = replace(options, observers=[*options.observers, *_observers_of_parts(options.equation)])
        trunk = trunk_of(options.critic, trl["model"])  # before TRL adds an adapter
        if options.collector is not None:
            trl["rollout_func"] = lambda prompts, trainer: trainer.components.rollout.collect(prompts, trainer)
        for observer in options.observers:
            observer.configure(trl)
        with in_place_of_vllm(options.engine, trl["args"], lambda: self.eos_token_ids):
            super().__init__(**trl)
        if options.engine is not None:
            self.vllm_generation.step = lambda: self.state.global_step
        models = [model for model in (self.model, self.ref_model) if model is not None]
        self.fused_heads = [FusedHead(model, self.accelerator, self.args.cast_lm_head_to_fp32) for model in models]
        options = options.with_rewards(self.reward_func_names)
        self.equation = options.equation
        self.components = Collaborators(self, super(), options, trunk)
        self.observe(options.observers)

    # -- the policy, for rollout sources and parts

    @property
    def critic(self) -> Critic | None:
        """Critic, None without one."""
        return self.components.critic.critic

    def save_critic(self, folder: Path) -> None:
        """Save the critic, if there is one, into a folder of its own."""
        if self.critic is not None and self.args.should_save:
            staged = folder.with_name(".critic")
            with saving(folder, staged):
                self.critic.save(staged)
                publish_sealed(staged, folder)
        self.accelerator.wait_for_everyone()

    @property
    def tokenizer(self) -> Any:
        """Tokenizer, unwrapped from a processor."""
        return self._tokenizer

    def prompt_ids(self, prompts: Sequence[Any]) -> list[list[int]]:
        """Return the token ids of prompts."""
        return self.components.tokens.prompt_ids(prompts)

    def answer_ids(self, prompt: Any, text: str) -> list[int]:
        """Return `text` as the policy would generate it after `prompt`: token ids up to the end token."""
        return self.components.tokens.answer_ids(prompt, text)

    def generate(
        self, prompts: Sequence[Any], prefixes: Sequence[Sequence[int]] | None = None, *, greedy: bool = False
    ) -> Completions:
        """Generate with the policy.

        Args:
            prompts: One per completion; may be empty.
            prefixes: Per completion, token ids that it starts with; they are not returned.
            greedy: Decode greedily.

        Returns:
            Token ids per completion, and their log-probs if the inference engine reports them (vLLM).
        """
        return self.components.generation.generate(prompts, prefixes, greedy=greedy)

    def play(
        self,
        prompts: Sequence[Any],
        inputs: Sequence[Mapping[str, Any]],
        starts: Sequence[Fork | None] | None = None,
    ) -> dict[str, list[Any]]:
        """Play one episode per prompt in the environment, as a rollout source returns it.

        Args:
            prompts: One per episode.
            inputs: The columns of each.
            starts: Per episode, the turns of another episode that are replayed first; None: none.
        """
        return self.components.rollout.play(prompts, inputs, starts)

    def token_statistics(
        self, prompt_ids: Sequence[Sequence[int]], completion_ids: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probs and entropies (n, longest) of completions under the policy that generates, in nats."""
        return self.components.tools.statistics_of(prompt_ids, completion_ids)

    def set_temperature(self, temperature: float) -> None:
        """Sample at this temperature from now on, and divide the logits of every forward pass by it."""
        self.temperature = temperature
        if self.use_vllm:
            self.vllm_generation.temperature = temperature
        else:
            self.generation_config.temperature = self.generation_kwargs["temperature"] = temperature
        for head in self.fused_heads:
            head.set_temperature(temperature)

    # -- a run

    def begin_training(self) -> None:
        """Begin at the start of a generation batch, even if an earlier call was interrupted within one."""
        if self.args.save_strategy != "no":
            self.components.states.check()  # fail now, not at the first save
        self._step, self._buffered_inputs = 0, None
        self.components.states.forget_snapshot()
        self.components.loss.reset()

    def begin_epoch(self, epoch: int) -> None:
        """Keep the RNG of the last step, and set the epoch of the prompts."""
        self.components.states.begin_epoch(self.state.global_step)
        self.components.prompts.begin_epoch(epoch)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint:
            self.components.states.load(checkpoint)

    def _get_train_sampler(self, dataset: Any = None) -> PromptSampler:
        return self.components.prompts.sampler(dataset)

    # -- a micro-batch

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run TRL's step and the critic's; skip a micro-batch that is empty or that an observer skips."""
        with self.observed_step():
            if self.components.micro_batches.is_empty() or any(x.skips_update() for x in self.observers):
                self._step += 1
                return torch.zeros((), device=self.accelerator.device)
            # not ObservedSteps.training_step: the loss calls the observers, with the micro-batch that TRL prepares
            loss: torch.Tensor = GRPOTrainer.training_step(self, *args, **kwargs)
            if self.critic is not None:
                stop_signals.current().may_abort, self.is_updating = False, True  # the critic's weights change now
            self.components.critic.step()
            self.end_micro_batch(loss)
        return loss

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        is_new = self.model.training and self.components.micro_batches.is_generation_due()
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        if is_new:
            self._buffered_inputs = self.components.micro_batches.build(self._buffered_inputs)
            inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
        return inputs

    # -- generation and scoring, once per generation batch

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        if self.model.training:
            self.components.states.take_snapshot(self.state.global_step)
        with self.components.rewards.recorded(self):
            return self.components.scoring.run(inputs, super()._generate_and_score_completions)

    def _generate(self, prompts: list[Any]) -> Any:
        with self.components.prefetch.during_generation(prompts), ExitStack() as context:
            self.components.rollout.start_batch()
            for observer in self.observers:
                context.enter_context(observer.sampling())
            generated = super()._generate(prompts)
        self.components.prefetch.begin_batch(prompts, *generated)
        return generated

    def _generate_single_turn(self, *args: Any, **options: Any) -> Completions:
        recording, on_finished = self.components.old_logprobs.are_recorded, self.components.prefetch.on_finished()
        turn = super()._generate_single_turn
        with nonfinite_logits(self.state.global_step):
            return self.components.generation.run(turn, recording, on_finished, *args, **options)

    def _get_per_token_logps_and_entropies(self, *args: Any, **options: Any) -> LogpsAndEntropies:
        if self.components.replaces_forward:
            logps: LogpsAndEntropies = super()._get_per_token_logps_and_entropies(*args, **options)
            return logps
        return self.components.old_logprobs.compute(*args, **options)

    def _calculate_rewards(self, *args: Any) -> torch.Tensor:
        return self.components.rewards.compute(super()._calculate_rewards, *args)

    # -- loss

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        return self.components.loss.of_micro_batch(model, inputs)

    def log(self, *args: Any, **options: Any) -> None:
        """Log the metrics of an optimizer step, or of an evaluation."""
        self.components.loss.means.flush()
        super().log(*args, **options)

    # -- checkpoints

    def _write_extras(self, folder: Path) -> None:
        self.components.states.save(folder)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        if hasattr(self.model, "peft_config"):  # the policy's adapter alone: a critic has files of its own
            state_dict = without_auxiliary(self.model, self.model.state_dict() if state_dict is None else state_dict)
        super()._save(output_dir, state_dict)

    def is_safe_point(self) -> bool:
        """Return True if every buffered completion has been trained on."""
        micro_steps = self.state.global_step * self.args.gradient_accumulation_steps
        return micro_steps % (self.args.steps_per_generation * self.args.num_iterations) == 0

    def may_abort_step(self) -> bool:
        """Return True on a single process at a safe point: other processes would wait in a collective."""
        return self.accelerator.num_processes == 1 and self.is_safe_point()

    def save_last_step(self) -> None:
        """Save the last optimizer step, with the state of RNG and parts at its end."""
        self.components.states.restore_snapshot(self.state.global_step)
        super().save_last_step()
