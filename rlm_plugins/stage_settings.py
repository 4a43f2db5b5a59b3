"""Sections `critic` and `evaluation` of a recipe, and the keys of a reward.

They are declared here, once: a recipe is validated against the same annotations, and the descriptions are those of its
JSON Schema and of `rlm explain`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, GetPydanticSchema
from pydantic_core import core_schema

from rlm_plugins.registry.part import Bound
from rlm_plugins.schedule import ScheduledNumber

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
        int,
        Field(ge=1, description="longest completion in tokens, where `trainer` has no `max_completion_length`"),
    ] = 256


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
