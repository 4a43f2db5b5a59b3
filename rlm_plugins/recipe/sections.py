"""Sections of a recipe with their keys, types and descriptions: the schema of the first of the three checks.

Fields of `trainer` and `lora` are validated by :mod:`rlm_plugins.recipe.trainer_settings`, knobs by their part.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated, Any, Literal, get_type_hints

import pydantic
from pydantic import AfterValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from rlm_plugins import stage
from rlm_plugins.equation.hooks import HOOKS
from rlm_plugins.equation.knobs import ScheduledNumber
from rlm_plugins.stage import STRICT

Text = Annotated[str, Field(min_length=1)]


class Keys(pydantic.BaseModel):
    """A mapping with declared keys."""

    model_config = STRICT


class Part(Keys, extra="allow"):
    """A part by name; its other keys are its knobs."""

    name: Text = Field(description="name of the part: `part`, or `plugin/part`")


class Slot(Keys, extra="allow"):
    """A part of the algorithm in one slot, or (without a name) knobs of the part that the algorithm has there."""

    name: Text | None = Field(None, description="name of the part; default: the algorithm's")


class Sourced(Slot):
    """A term of the loss."""

    source: Text | None = Field(None, description="rollout source whose completions it applies to; default: all")
    min_reward: float | None = Field(None, description="smallest reward of the completions it applies to; default: any")


class Normalized(Sourced):
    """A term of the loss that may be normalized by itself."""

    aggregator: Text | Part | None = Field(
        None, description="aggregator of this term alone, over its own completions; default: the algorithm's"
    )


class Penalty(Normalized):
    """A penalty and its coefficient."""

    beta: ScheduledNumber | None = Field(None, description="coefficient in the loss: a number or a schedule")


class Filter(Slot):
    """A filter of groups or completions."""

    refill: int | None = Field(
        None, ge=1, description="most sampling rounds until the batch is full of groups it keeps (dynamic sampling)"
    )


class Source(Slot):
    """A rollout source."""

    num_completions: int | None = Field(
        None, ge=1, description="completions of a group that it generates; default: all that are left"
    )
    label: Text | None = Field(None, alias="as", description="name of the source for other parts; default: its name")


_TAG = Discriminator(lambda value: "changes" if isinstance(value, dict) and "name" not in value else "parts")


def _part_list(spec: type[Slot], **required: Any) -> Any:
    """Return the type of a slot with several parts: a list replaces them, a mapping changes them one by one."""
    entry = pydantic.create_model(spec.__name__, __base__=(Part, spec), **required)  # a Part has a name
    return Annotated[Annotated[dict[str, spec], Tag("changes")] | Annotated[list[entry], Tag("parts")], _TAG]  # type: ignore[valid-type]


class Algorithm(Keys):
    """An algorithm, and its parts that differ: the fields of :class:`rlm_plugins.specs.Algorithm`."""

    name: Text = Field(description="name of the algorithm: see `rlm explain algorithms`")
    sampler: Slot | None = Field(None, description="order of the prompts")
    rollouts: _part_list(Source) | None = Field(None, description="rollout sources beside the policy")  # type: ignore[valid-type]
    shapers: _part_list(Slot) | None = Field(None, description="reward shaping, in this order")  # type: ignore[valid-type]
    filters: _part_list(Filter) | None = Field(None, description="filters of groups and completions")  # type: ignore[valid-type]
    advantage: Slot | None = Field(None, description="advantage estimator")
    importance: Slot | None = Field(None, description="importance ratio")
    policy_loss: Normalized | None = Field(None, description="loss per token")
    token_weights: _part_list(Sourced) | None = Field(None, description="weights of tokens in the loss")  # type: ignore[valid-type]
    penalties: (
        _part_list(  # type: ignore[valid-type]
            Penalty, beta=(ScheduledNumber, Field(description=Penalty.model_fields["beta"].description))
        )
        | None
    ) = Field(None, description="terms added to the loss, each with its `beta`")
    aggregator: Slot | None = Field(None, description="normalization of the loss over tokens")


MANY = frozenset(hook.key for hook in HOOKS.values() if hook.many)
"""Keys that hold a list of parts."""

FOLDER = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"


def _check_folder(text: str) -> str:
    if re.fullmatch(FOLDER, text) is None:
        raise PydanticCustomError("folder_name", "letters, digits, '.', '_' and '-' (it names a folder)")
    return text


FolderName = Annotated[str, AfterValidator(_check_folder)]


def folder_name(text: str) -> str:
    """Return `text` as the name of a folder.

    >>> folder_name("my first (copy)"), folder_name("…")
    ('my-first-copy', 'unnamed')
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:100].strip("-._") or "unnamed"


class Model(Keys, extra="allow"):
    """The model: a part of `rlm_models`, a hub name or a folder; a later stage has no name."""

    name: Text | None = Field(
        None, description="a part, a hub name, a `.gguf` file, or a folder written by `save_pretrained`"
    )
    lora: dict[str, Any] | None = Field(
        None,
        description="fields of `peft.LoraConfig`, or with `peft_type` of another adapter; default: train all weights",
    )


_HINTS = get_type_hints(stage.Reward, include_extras=True)
_DEFAULTS = {f.name: f.default for f in dataclasses.fields(stage.Reward) if f.default is not dataclasses.MISSING}
Reward = pydantic.create_model(
    "Reward",
    __base__=Part,
    __doc__="A reward part, its weight, its label, and its treatment of failures.",
    label=(Text | None, Field(None, alias="as", description=_HINTS["label"].__metadata__[0].description)),
    **{name: (_HINTS[name], default) for name, default in _DEFAULTS.items()},  # type: ignore[call-overload]
)


class Plugins(Keys):
    """Plugins to load and to leave out."""

    load: list[Text] = Field([], description="Python files to load as plugins, relative to the recipe")
    block: list[Text] = Field([], description="installed plugins to leave out")
    packages: list[Text] = Field([], description="installed packages whose functions the recipe addresses")


class Body(Keys):
    """One stage."""

    name: FolderName | None = Field(None, description="name of the stage, or of the recipe, and of its folder")
    model: Model | None = Field(None, description="the model to train, and its adapter")
    environment: Part | None = Field(None, description="the prompts, and the environment that answers them")
    rewards: list[Reward] | None = Field(None, description="reward functions; the reward is their weighted sum")  # type: ignore[valid-type]
    algorithm: Algorithm | None = Field(None, description="the algorithm by name, and its parts that differ")
    critic: stage.Critic | None = Field(None, description="the critic, if a part of the algorithm requires `values`")
    generator: Part | None = Field(None, description="decoding of the policy, or `none` for `transformers.generate`")
    engine: Part | None = Field(
        None, description="inference engine that samples in training; default: `vllm` if `use_vllm`"
    )
    trainer: dict[str, Any] | None = Field(None, description="fields of the trainer's config, as in TRL")
    callbacks: list[Part] | None = Field(None, description="callbacks of the trainer")
    observers: list[Part] | None = Field(None, description="observers of the training steps")
    evaluation: stage.Evaluation | None = Field(None, description="evaluation on held-out examples")
    on_divergence: Literal["stop", "back_off"] | None = Field(
        None, description="loss, gradient or weights diverge: stop, or repeat from the last checkpoint at a lower rate"
    )


SECTIONS = tuple(Body.model_fields)[1:]
"""Sections of a stage, which are its keys but the name; it inherits from the top level those that it lacks."""


class Document(Body):
    """A whole recipe: one stage, or the keys that its stages share."""

    plugins: Plugins | None = Field(None, description="plugins to load and to leave out")
    stages: list[Body] | None = Field(
        None, min_length=1, description="stages in order, each starting from the model of the one before"
    )


KEYS = frozenset(f.alias or name for name, f in Document.model_fields.items())
"""Keys of the top level of a recipe, and of a stage; all others are sections that packages own."""
_SECTIONS: dict[str, Any] = {
    "": Document,
    "algorithm": Algorithm,
    "critic": stage.Critic,
    "evaluation": stage.Evaluation,
    "plugins": Plugins,
}


def keys_of_section(section: str) -> list[str]:
    """Return the keys of a section; those of a stage where it is none, those of a recipe for the empty string.

    >>> keys_of_section("plugins")
    ['load', 'block', 'packages']
    """
    model = _SECTIONS.get(section, Body)
    if dataclasses.is_dataclass(model):
        return [f.name for f in dataclasses.fields(model)]
    return [f.alias or name for name, f in model.model_fields.items()]
