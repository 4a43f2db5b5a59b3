"""Trainer of the equation: every override of TRL's GRPOTrainer, in the order in which TRL calls it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from trl import GRPOTrainer

from rlm_plugins.divergence import nonfinite_logits
from rlm_plugins.durable import stop_signals
from rlm_plugins.models.adapters import without_auxiliary
from rlm_plugins.rollout.prompt_source import PromptSampler
from rlm_plugins.trainer.collaborators import Collaborators
from rlm_plugins.trainer.critic_update import trunk_of
from rlm_plugins.trainer.generation import Completions
from rlm_plugins.trainer.observed_steps import ObservedSteps
from rlm_plugins.trainer.options import TrainerOptions
from rlm_plugins.trainer.passes import LogpsAndEntropies
from rlm_plugins.trainer.policy_interface import PolicyInterface


class EquationTrainer(ObservedSteps, PolicyInterface, GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer whose advantage and loss are the parts of an :class:`rlm_plugins.equation.Equation`.

    Args:
        options: Arguments of the stage beside those of GRPOTrainer.
        **trl: Arguments of GRPOTrainer.

    Attributes:
        components: Collaborators that the overrides call.
        equation: Parts of the algorithm.
    """

    _name = "rlm"
    _tag_names: tuple[str, ...] = ("trl", "rlm-plugins")
    _buffered_inputs: Any

    def __init__(self, options: TrainerOptions, **trl: Any) -> None:
        trunk = trunk_of(options.critic, trl["model"])  # before TRL adds an adapter
        if options.collector is not None:
            trl["rollout_func"] = _collect
        for observer in options.observers:
            observer.configure(trl)
        super().__init__(**trl)
        options = options.with_rewards(self.reward_func_names)
        self.equation = options.equation
        self.components = Collaborators(self, super(), options, trunk)
        self.observe(options.observers)

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
                stop_signals.current().may_abort = False  # the critic's weights change now
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
        return self.components.old_logprobs.compute(*args, **options)

    def _calculate_rewards(self, *args: Any) -> torch.Tensor:
        return self.components.rewards.compute(super()._calculate_rewards, *args)

    # -- loss

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        return self.components.loss.of_micro_batch(model, inputs)

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


def _collect(prompts: Sequence[Any], trainer: EquationTrainer) -> dict[str, Any]:
    """Return the completions of all rollout sources; TRL's `rollout_func`."""
    return trainer.components.rollout.collect(prompts, trainer)
