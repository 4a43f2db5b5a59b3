"""The section `algorithm` of a recipe: an algorithm by name, and its parts that differ."""

from __future__ import annotations

from typing import Annotated, Any

import pydantic
from pydantic import Discriminator, Field, Tag

from rlm_plugins.schedule import ScheduledNumber
from rlm_plugins.stage_settings import STRICT

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
    """An algorithm, and its parts that differ: the fields of :class:`rlm_plugins.algorithm.Algorithm`."""

    name: Text = Field(description="name of the algorithm: see `rlm algorithms`")
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
