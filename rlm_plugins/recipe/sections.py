"""What a recipe may look like: the sections, their shapes, their keys. The first of the three walls.

Values of `trainer:` and `lora:` are checked by :mod:`rlm_plugins.recipe.trainer_settings`, knobs by the part they
belong to.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Discriminator, Field, Tag, WrapValidator

from rlm_plugins.hookspecs import HOOKS

SECTIONS = (
    "model",
    "environment",
    "rewards",
    "algorithm",
    "critic",
    "speed",
    "generator",
    "trainer",
    "callbacks",
    "evaluation",
)
"""The keys of a stage, which it inherits from the top level where it does not say them."""
MANY = frozenset(hook.key for hook in HOOKS.values() if hook.many)
"""The keys that hold a list of parts."""

Text = Annotated[str, Field(min_length=1)]
FOLDER = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
FolderName = Annotated[str, Field(pattern=FOLDER)]


def folder_name(text: str) -> str:
    """`text` as the name of a folder.

    >>> folder_name("my first (copy)"), folder_name("…")
    ('my-first-copy', 'unnamed')
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:100].strip("-._") or "unnamed"


class Keys(pydantic.BaseModel):
    """A mapping whose keys are these and no others."""

    model_config = pydantic.ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Part(Keys, extra="allow"):
    """A part by name; its other keys are its knobs."""

    name: Text


class Model(Keys, extra="allow"):
    """A part that makes a model, and the LoRA config; a later stage has no name."""

    name: Text | None = None
    lora: dict[str, Any] | None = None


class Reward(Part):
    """A reward, its weight in the sum, the label it is logged under, and what becomes of a run in which it fails."""

    label: Text | None = Field(None, alias="as")
    weight: float = 1.0
    on_error: Literal["stop", "zero", "skip"] = "stop"
    timeout: float | None = Field(None, gt=0)
    processes: int | None = Field(None, ge=1, le=64)
    prefetch: bool = True


class Slot(Keys, extra="allow"):
    """The part of a row in one slot, or (without a name) knobs of the part the row has there."""

    name: Text | None = None


class Sourced(Slot):
    """A term of the loss, and the rollout source whose rows it counts on; without one, all rows."""

    source: Text | None = None


def _number_or_schedule(value: Any, number: Any) -> Any:
    return value if isinstance(value, dict) else number(value)


Coefficient = Annotated[float, WrapValidator(_number_or_schedule)]


class Penalty(Sourced):
    """A penalty and its coefficient."""

    beta: Coefficient | None = None


class Filter(Slot):
    """A filter, and how many generation batches may be drawn until the batch is full of groups it keeps."""

    refill: int | None = Field(None, ge=1)


class Source(Slot):
    """A rollout source, how many rows of a group it writes (none said: all that are left), and what they go by."""

    num_completions: int | None = Field(None, ge=1)
    label: Text | None = Field(None, alias="as")


_TAG = Discriminator(lambda value: "changes" if isinstance(value, dict) and "name" not in value else "parts")


def _many(kind: type[Slot], **required: Any) -> Any:
    """A list replaces the row's; a mapping changes entries of the row's list, by position or name."""
    entry = pydantic.create_model(kind.__name__, __base__=(Part, kind), **required)  # a Part has a name
    return Annotated[Annotated[dict[str, kind], Tag("changes")] | Annotated[list[entry], Tag("parts")], _TAG]  # type: ignore[valid-type]


class Algorithm(Keys):
    """A row of the table, and what is different from it: the fields of :class:`rlm_plugins.algorithm.Algorithm`."""

    name: Text
    sampler: Slot | None = None
    rollouts: _many(Source) | None = None  # type: ignore[valid-type]
    shapers: _many(Slot) | None = None  # type: ignore[valid-type]
    filters: _many(Filter) | None = None  # type: ignore[valid-type]
    advantage: Slot | None = None
    importance: Slot | None = None
    policy_loss: Sourced | None = None
    token_weights: _many(Sourced) | None = None  # type: ignore[valid-type]
    penalties: _many(Penalty, beta=(Coefficient, ...)) | None = None  # type: ignore[valid-type]
    aggregator: Slot | None = None


class Critic(Keys):
    """What stands behind `values`: the fields of :class:`rlm_plugins.stage.Critic`."""

    kind: Literal["shared", "head", "separate"] | None = None
    lora: dict[str, Any] | None = None
    learning_rate: Coefficient | None = None
    max_grad_norm: float = Field(1.0, ge=0)
    warmup_steps: int = Field(0, ge=0)


class Speed(Keys):
    """What may be left out because it changes nothing: the fields of :class:`rlm_plugins.stage.Speed`."""

    padding_free: bool = True
    skip_zero_advantage: bool = True
    group_micro_batches: bool = True
    reuse_old_logprobs: bool = True
    prefetch_rewards: bool = True
    merge_micro_batches: bool = True
    fused_lora: bool = True
    max_tokens_per_micro_batch: Annotated[int, Field(ge=1)] | Literal["auto"] | None = None


class Evaluation(Keys):
    """How the model is judged on held-out rows."""

    metric: Text | None = None
    every: int = Field(0, ge=0)
    rows: int = Field(0, ge=0)
    batch_size: int = Field(64, ge=1)
    max_new_tokens: int = Field(256, ge=1)


class Plugins(Keys):
    """Single files to load, installed plugins to leave out."""

    load: list[Text] = []
    block: list[Text] = []


class Body(Keys):
    """One stage."""

    name: FolderName | None = None
    model: Model | None = None
    environment: Part | None = None
    rewards: list[Reward] | None = None
    algorithm: Algorithm | None = None
    critic: Critic | None = None
    speed: Speed | None = None
    generator: Part | None = None
    trainer: dict[str, Any] | None = None
    callbacks: list[Part] | None = None
    evaluation: Evaluation | None = None


class Document(Body):
    """A whole recipe: one stage, or what its stages share."""

    plugins: Plugins | None = None
    stages: list[Body] | None = Field(None, min_length=1)
