"""One stage of a run with everything resolved: what an engine is handed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.registry.part import Bound
from rlm_plugins.schedule import Schedule
from rlm_plugins.specs import EnvironmentSpec, ModelSpec

if TYPE_CHECKING:
    from rlm_plugins.step import Equation


@dataclass(frozen=True)
class Reward:
    """One entry of ``rewards:``.

    Args:
        label: The name it is logged under (``as:`` in the recipe, else the part's name).
        part: The reward part with its knobs.
        weight: Its coefficient in the sum.
        on_error: Where it fails the run stops (``stop``), its rows score 0 (``zero``) or teach nothing (``skip``).
        timeout: Seconds one call may take: with all rows, with those of a group where it has `processes`, with one
            where it is asynchronous and of one completion; None: any number.
        processes: Processes of its own in which it is called, one group at a time; None: it is called in this one.
        prefetch: Whether it may be asked early, group by group, where it is asynchronous or has `processes`.
    """

    label: str
    part: Bound
    weight: float = 1.0
    on_error: str = "stop"
    timeout: float | None = None
    processes: int | None = None
    prefetch: bool = True


@dataclass(frozen=True)
class Evaluation:
    """How a model is judged on held-out rows.

    Args:
        metric: Label of the reward that is the score.
        every: Steps between evaluations while training; 0: only before and after.
        rows: How many held-out rows at most; 0: all.
        batch_size: Rows generated at once.
        max_new_tokens: Longest answer in a stage whose `trainer:` has no `max_completion_length`, in tokens.
    """

    metric: str
    every: int = 0
    rows: int = 0
    batch_size: int = 64
    max_new_tokens: int = 256


@dataclass(frozen=True)
class Critic:
    """What a recipe says of the critic; there is one where a part names `values`, `old_values` or `returns`.

    Args:
        kind: ``shared``: an adapter of its own on the policy's frozen base. ``head``: a value head on the policy's
            hidden states. ``separate``: a copy of the model.
        lora: Fields of ``peft.LoraConfig`` for ``shared``; None: as the policy's, without its dropout.
        learning_rate: A number or a schedule; None: as `trainer.learning_rate`, without its schedule.
        max_grad_norm: Where its own gradient is clipped; 0: nowhere.
        warmup_steps: Optimiser steps in which the critic learns alone: the policy does not move at all.
    """

    kind: str
    lora: Mapping[str, Any] | None = None
    learning_rate: float | Schedule | None = None
    max_grad_norm: float = 1.0
    warmup_steps: int = 0


@dataclass(frozen=True)
class Speed:
    """Which of the short cuts are taken that change no gradient.

    Args:
        padding_free: Rows are read without padding, each prompt once for its group.
        skip_zero_advantage: Rows whose advantage is 0 are not read by the update, where the loss has no gradient there.
        group_micro_batches: Micro-batches are dealt out group by group, within an optimiser step.
        reuse_old_logprobs: Where a generation is used several times, its old log-probabilities are those of the first
            pass over it, or what was thought while it was written.
        prefetch_rewards: Rewards that wait, or compute in processes of their own, are asked while the model writes and
            reads.
        merge_micro_batches: Micro-batches of an optimiser step are read together while they are small even for a CPU.
        fused_lora: Products of a LoRA layer in float32 are added to its base's while these are made.
        max_tokens_per_micro_batch: Micro-batches hold as many rows as have so many tokens, a prompt counted once for
            its group. ``auto``: as many as a micro-batch of the recipe, all of it at full length. None: its number of
            rows.
    """

    padding_free: bool = False
    skip_zero_advantage: bool = False
    group_micro_batches: bool = False
    reuse_old_logprobs: bool = False
    prefetch_rewards: bool = False
    merge_micro_batches: bool = False
    fused_lora: bool = False
    max_tokens_per_micro_batch: int | str | None = None


NO_SPEED = Speed()
"""As TRL does it."""
EVERY_SHORTCUT = Speed(
    padding_free=True,
    skip_zero_advantage=True,
    group_micro_batches=True,
    reuse_old_logprobs=True,
    prefetch_rewards=True,
    merge_micro_batches=True,
    fused_lora=True,
)
"""What a recipe takes where it says nothing: what costs no memory."""


@dataclass
class Stage:
    """A stage, checked and bound; no weight is loaded yet.

    Args:
        name: ``01-sft``: position and name; also its folder in the run.
        body: The resolved recipe of the stage as plain data.
        engine: The instance of the ``rlm_trainers`` class that runs it.
        settings: ``trainer:`` of the recipe, checked against the engine's config class.
        world: The environment, built.
        source: Where the weights come from; for a later stage the machine replaces it by the last one's result.
        lora: Fields of ``peft.LoraConfig``, or None to train all weights.
        rewards: In the order of the recipe; empty for a supervised stage.
        evaluation: None when nothing can be evaluated (no rewards, or no held-out rows).
        equation: The parts of the algorithm row; None for an engine that has a loss of its own.
        sampler: Which problem next; None: the engine's shuffle.
        rollouts: Who writes rows beside the policy.
        critic: What it is like, where a part asks for one.
        speed: Which short cuts are taken.
        generator: How the policy writes; None: as transformers does it.
        callbacks: Parts that make `TrainerCallback`s.
        folder: Where it writes; set when a run starts.
        earlier: Name of an earlier stage (``02-reward``, ``reward``) → its adapter, as `lora`.
        results: Name of an earlier stage (``02-reward``, ``reward``) → where its result lies; set when a run starts.
        watchers: transformers callbacks that the machine adds (ledger, learning curve, progress).
        observer: Is shown every scored generation batch; see `trainer.EquationTrainer`.
        note: Is handed the samples on which a reward failed, as plain data.
        resume: Whether to go on from the last checkpoint in `folder`.
    """

    name: str
    body: Mapping[str, Any]
    engine: Any
    settings: Mapping[str, Any]
    environment_spec: EnvironmentSpec
    source: ModelSpec
    lora: Mapping[str, Any] | None = None
    rewards: Sequence[Reward] = ()
    evaluation: Evaluation | None = None
    equation: Equation | None = None
    sampler: Bound | None = None
    rollouts: Sequence[Bound] = ()
    critic: Critic | None = None
    speed: Speed = Speed()
    generator: Bound | None = None
    callbacks: Sequence[Bound] = ()
    folder: Path = Path("runs")
    earlier: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)
    results: Mapping[str, Path] = field(default_factory=dict)
    watchers: Sequence[Any] = ()
    observer: Callable[..., None] | None = None
    note: Callable[[Sequence[Mapping[str, Any]]], None] | None = None
    resume: bool = False

    @property
    def output(self) -> Path:
        """Where its result lies: an adapter with LoRA, else the whole model; the tokenizer beside it."""
        return self.folder / ("adapter" if self.lora is not None else "model")

    def parts(self) -> list[Bound]:
        """Every part of the stage that has knobs, in batch order."""
        before = [part for part in (self.sampler, *self.rollouts, self.generator) if part is not None]
        equation = self.equation.parts() if self.equation is not None else []
        return [*before, *(reward.part for reward in self.rewards), *equation, *self.callbacks]
