"""One stage of a run, resolved and validated: its sections, and the input of a trainer.

They are declared here, once: a recipe is validated against the same annotations, and the descriptions are those of its
JSON Schema and of `rlm explain`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import ConfigDict, Field, GetPydanticSchema
from pydantic_core import core_schema

from rlm_plugins.equation.knobs import ScheduledNumber
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.setting import Section, Setting
from rlm_plugins.specs import EnvironmentSpec, ModelSpec

if TYPE_CHECKING:
    from rlm_plugins.equation.equation import Equation
    from rlm_plugins.rollout.engine_call import Engine
    from rlm_plugins.trainer.observer import StepObserver


STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
"""Validation of a recipe: no unknown keys, no conversions."""


@dataclass(frozen=True)
class Reward:
    """One entry of `rewards`: a reward part and its keys."""

    label: Annotated[str, Field(description="name under which it is logged; default: the name of the part")]
    part: Bound
    weight: Annotated[float, Field(description="coefficient in the sum of rewards")] = 1.0
    on_error: Annotated[
        Literal["stop", "zero", "skip"],
        Field(description="on a failure the run stops, or the completions score 0, or they are excluded from training"),
    ] = "stop"
    timeout: Annotated[
        float | None,
        Field(
            gt=0,
            le=2_592_000,
            description="seconds one call may take: for all completions, for one group with `processes`, for one "
            "completion if it is asynchronous and of one completion; default: 3600, an hour",
        ),
    ] = None
    processes: Annotated[
        int | None, Field(ge=1, le=64, description="worker processes that call it, one group at a time; killed if late")
    ] = None
    prefetch: Annotated[
        bool, Field(description="start it during generation, if it is asynchronous or has `processes`")
    ] = True
    messages: Annotated[
        bool | None,
        Field(description="pass chat completions as lists of messages, not as text; default: what its annotation says"),
    ] = None


@dataclass(frozen=True)
class Evaluation:
    """Evaluation of the model on held-out examples."""

    __pydantic_config__ = STRICT

    metric: Annotated[
        str,
        Field(min_length=1),
        GetPydanticSchema(lambda kind, schema_of: core_schema.nullable_schema(schema_of(kind))),
        Field(description="label of the reward that is the score; default: the first reward"),
    ] = ""
    every: Annotated[int, Field(ge=0, description="optimizer steps between evaluations; 0: only before and after")] = 0
    rows: Annotated[int, Field(ge=0, description="maximum number of held-out examples; 0: all")] = 0
    batch_size: Annotated[int, Field(ge=1, description="completions generated at once")] = 64
    samples: Annotated[
        int,
        Field(ge=0, description="completions sampled per example before and after, for pass@k and majority@k; 0: none"),
    ] = 0
    k: Annotated[
        list[Annotated[int, Field(ge=1)]],
        Field(description="the k of pass@k and majority@k, at most `samples`; default: powers of 4, and `samples`"),
    ] = field(default_factory=list)
    temperature: Annotated[
        float | None, Field(gt=0, description="temperature of the sampled completions; default: as in training")
    ] = None
    keep: Annotated[
        Literal["last", "best"],
        Field(description="the result: the last weights, or those of the best lower end of the held-out interval"),
    ] = "last"
    stop: Annotated[
        int, Field(ge=0, description="evaluations without a certain improvement after which a stage ends; 0: never")
    ] = 0
    suite: Annotated[
        dict[str, dict[str, Any]],
        Field(description="further held-out sets, each a name and an `environment`: scored before and after training"),
    ] = field(default_factory=dict)
    max_new_tokens: Annotated[
        int | None,
        Field(ge=1, description="longest completion in tokens; default: `trainer.max_completion_length`, else 256"),
    ] = None


@dataclass(frozen=True)
class Critic:
    """The critic: the model behind `values`, trained if a part of the algorithm requires `values` or `returns`."""

    __pydantic_config__ = STRICT

    kind: Annotated[
        Literal["shared", "head", "separate"] | None,
        Field(
            description="`shared`: an adapter of its own on the policy's frozen base; `head`: a value head on the "
            "policy's hidden states; `separate`: a copy of the model; default: `shared` with `model.lora`, else "
            "`separate`",
        ),
    ] = None
    lora: Annotated[
        dict[str, Any] | None,
        Field(description="fields of `peft.LoraConfig` for `shared`; default: the policy's, without its dropout"),
    ] = None
    learning_rate: Annotated[
        ScheduledNumber | None,
        Field(description="a number or a schedule; default: `trainer.learning_rate`, without its scheduler"),
    ] = None
    max_grad_norm: Annotated[float, Field(ge=0, description="norm at which its gradient is clipped; 0: never")] = 1.0
    warmup_steps: Annotated[
        int, Field(ge=0, description="optimizer steps in which only the critic is trained, at the start of a run")
    ] = 0


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
        engine: The inference engine; None: the generator decodes.
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
    engine: Bound | None = None
    extensions: Extensions = Extensions()
    place: Place = Place()

    @property
    def sections(self) -> Mapping[str, Section]:
        """The sections of packages, by key."""
        parts: Mapping[str, Any] = self.extensions.sections
        return {key: part.target for key, part in parts.items()}

    @property
    def policy_engine(self) -> Engine | None:
        """The inference engine; None: the generator decodes."""
        return None if self.engine is None else cast(Any, self.engine.target)

    @property
    def folder(self) -> Path:
        """Its folder in the run."""
        return self.place.folder

    @property
    def output(self) -> Path:
        """Path of its result: an adapter with LoRA, else the whole model, with the tokenizer."""
        return self.folder / ("adapter" if self.lora is not None else "model")

    @property
    def longest_completion(self) -> int:
        """Length limit of held-out completions, in tokens."""
        limit = self.evaluation.max_new_tokens if self.evaluation is not None else None
        return int(limit or self.settings.get("max_completion_length") or 256)

    def parts(self) -> list[Bound]:
        """Return every part of the stage that has knobs, in the order of a training step."""
        sampling = [part for part in (self.sampler, *self.rollouts, self.generator, self.engine) if part is not None]
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
