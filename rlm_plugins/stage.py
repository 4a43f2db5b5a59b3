"""One stage of a run, resolved and validated: the input of a trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.section import Section
from rlm_plugins.registry.setting import Setting
from rlm_plugins.specs import EnvironmentSpec, ModelSpec
from rlm_plugins.stage_settings import Critic, Evaluation, Reward

if TYPE_CHECKING:
    from rlm_plugins.equation import Equation
    from rlm_plugins.trainer.observer import StepObserver


@dataclass(frozen=True)
class Extensions:
    """Parts of a stage beside model, data and equation.

    Args:
        callbacks: Parts that return a `TrainerCallback`.
        observers: Observers of the training steps.
        sections: Sections of the recipe that packages own, by key.
        settings: Settings of packages that `trainer:` has, by name.
    """

    callbacks: Sequence[Bound] = ()
    observers: Sequence[Bound] = ()
    sections: Mapping[str, Bound] = field(default_factory=dict)
    settings: Mapping[str, Setting] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """Place of a stage in its run.

    Args:
        folder: Its folder.
        results: Name of an earlier stage (``02-reward``, ``reward``) → path of its result.
        earlier: Name of an earlier stage → its adapter, as `lora`.
    """

    folder: Path = Path("runs")
    results: Mapping[str, Path] = field(default_factory=dict)
    earlier: Mapping[str, Mapping[str, Any] | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Stage:
    """A stage, validated and bound; no weight is loaded yet.

    Args:
        name: ``01-sft``: position and name, also its folder in the run.
        body: The resolved recipe of the stage as plain data.
        trainer: The trainer: an instance of a class of `rlm_trainers`.
        settings: ``trainer:`` of the recipe, validated against the trainer's config class.
        environment_spec: The data sets and the environment, built.
        source: The weights: those of the recipe, in a run those of the result of the stage before.
        lora: Fields of ``peft.LoraConfig``, or None to train all weights.
        rewards: In the order of the recipe; empty for a supervised stage.
        evaluation: None without rewards or held-out examples.
        suite: Name → further held-out examples of `evaluation`.
        equation: The parts of the algorithm; None for a trainer with a loss of its own.
        sampler: The order of prompts; None: TRL's shuffle.
        rollouts: Rollout sources beside the policy.
        critic: Set if a part requires `values` or `returns`.
        generator: The decoding; None: ``transformers.generate``.
        extensions: Callbacks, observers, sections and settings.
        place: Its folder, and the results of earlier stages.
    """

    name: str
    body: Mapping[str, Any]
    trainer: Any
    settings: Mapping[str, Any]
    environment_spec: EnvironmentSpec
    source: ModelSpec
    lora: Mapping[str, Any] | None = None
    rewards: Sequence[Reward] = ()
    evaluation: Evaluation | None = None
    suite: Mapping[str, EnvironmentSpec] = field(default_factory=dict)
    equation: Equation | None = None
    sampler: Bound | None = None
    rollouts: Sequence[Bound] = ()
    critic: Critic | None = None
    generator: Bound | None = None
    extensions: Extensions = Extensions()
    place: Place = Place()

    @property
    def sections(self) -> Mapping[str, Section]:
        """The sections of packages, by key."""
        parts: Mapping[str, Any] = self.extensions.sections
        return {key: part.target for key, part in parts.items()}

    @property
    def folder(self) -> Path:
        """Its folder in the run."""
        return self.place.folder

    @property
    def output(self) -> Path:
        """Path of its result: an adapter with LoRA, else the whole model, with the tokenizer."""
        return self.folder / ("adapter" if self.lora is not None else "model")

    def parts(self) -> list[Bound]:
        """Return every part of the stage that has knobs, in the order of a training step."""
        sampling = [part for part in (self.sampler, *self.rollouts, self.generator) if part is not None]
        equation = self.equation.parts() if self.equation is not None else []
        added = self.extensions
        extensions = [*added.callbacks, *added.observers, *added.sections.values()]
        return [*sampling, *(reward.part for reward in self.rewards), *equation, *extensions]


@dataclass
class RunState:
    """State of the run that trains a stage. The defaults train without a run folder.

    Args:
        owner: Name of run and stage, recorded in its checkpoints.
        checkpoint: The checkpoint to resume from; None: the start.
        rate_scale: Factor of the learning rates, below 1 after a divergence.
        callbacks: Callbacks of the run itself (metrics log, learning curve, progress).
        observers: Observers of the run itself (log of samples).
        log_faults: Called with the samples on which a reward failed, as plain data.
        record: Writes entries (digests, settings) of the stage into the manifest of the run.
        sync: Writes the logs of the run to disk.
    """

    owner: str = ""
    checkpoint: Path | None = None
    rate_scale: float = 1.0
    callbacks: Sequence[Any] = ()
    observers: Sequence[StepObserver] = ()
    log_faults: Callable[[Sequence[Mapping[str, Any]]], None] | None = None
    record: Callable[..., None] | None = None
    sync: Callable[[], None] | None = None
