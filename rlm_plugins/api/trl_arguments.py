"""Arguments of TRL's trainers as a stage: config and reward functions become an algorithm and entries of a recipe."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlm_plugins import recipe
from rlm_plugins.algorithm import Algorithm
from rlm_plugins.api.objects import add, name_only_reward, named_algorithm
from rlm_plugins.api.trl_rewards import of_environment, reward_entries
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.checks.group_size import check_groups
from rlm_plugins.recipe.checks.part_needs import check_config_rules, check_rows_fit
from rlm_plugins.recipe.compose import stage_of
from rlm_plugins.recipe.resolve import Plan, located, plans_of
from rlm_plugins.recipe.trainer_settings import check_installed
from rlm_plugins.recipe.trl_fields import algorithm_of, decided, fields_of, slot_of
from rlm_plugins.registry import Registry
from rlm_plugins.specs import EnvironmentSpec, ModelSpec
from rlm_plugins.stage import Stage

NO_SPEED = "none"
_NOT_FOR_A_CRITIC = (
    "peft_type",
    "inference_mode",
    "base_model_name_or_path",
    "revision",
    "task_type",
    "auto_mapping",
    "runtime_config",
    "peft_version",
)
"""Fields of the policy's adapter that do not apply to the critic's."""


@dataclass(frozen=True)
class Extras:
    """Arguments of the trainers beside those of TRL.

    Args:
        algorithm: A name, an :class:`rlm_plugins.algorithm.Algorithm`, or a mapping of slots, in which functions are
            parts; None: the algorithm of the config.
        speed: Optimizations: a mapping, ``"none"``, or None for all.
        critic: Kind of the critic, or a mapping; None: the default of an algorithm that has one.
        generator: Decoding: a name or a mapping; None: the default.
        plugins: Python files to load as plugins.
    """

    algorithm: Any = None
    speed: Any = None
    critic: Any = None
    generator: Any = None
    plugins: Sequence[str | Path] = ()


def stage_from(
    extras: Extras, kind: str, args: Any, config: Any, reward_funcs: Any, adapter: Any, data: Any
) -> tuple[Stage, Any]:
    """Return the stage of a trainer, and its config.

    Args:
        extras: The arguments beside TRL's.
        kind: Config class in the table of :mod:`rlm_plugins.recipe.trl_fields`.
        args: The config of TRL.
        config: Converts the config: (config of TRL, stage, fields that the generator fixes) → config.
        reward_funcs: As TRL takes them; also names and mappings of reward parts.
        adapter: PEFT config of the policy, or None.
        data: Training examples, or None.

    Raises:
        RecipeError: The arguments do not fit together.
    """
    registry = Registry(load=extras.plugins)
    rewards = reward_entries(registry, reward_funcs, args.reward_weights)
    weights = {entry["as"]: entry["weight"] for entry in rewards}
    default = algorithm_of_config(kind, args, weights)
    section = named_algorithm(registry, extras.algorithm, default)
    name_only_reward(registry, section, list(weights))
    model: dict[str, Any] = {"name": add(registry, "model", _in_memory, "model")}
    if adapter is not None:
        model["lora"] = adapter
    data_part = {"name": add(registry, "environment", _in_memory, "train_dataset")}
    mapping = {
        "model": model,
        "environment": data_part,
        "rewards": rewards or [{"name": add(registry, "rewards", of_environment, "environment")}],
        "algorithm": section,
        "trainer": {"use_vllm": args.use_vllm},
        **_sections(extras),
    }
    document = recipe.of_mapping(mapping)
    with located(document):
        (plan,) = plans_of(document, registry)
        if extras.algorithm is not None:
            check_consistency(kind, args, plan)
        fixed = {name: value for name, value in plan.stage.settings.items() if name != "use_vllm" or value}
        trainer_config = config(args, plan, fixed)
        check_rows_fit(plan.slots, trainer_config, ())
        check_config_rules(plan.slots, trainer_config, "algorithm")
        check_installed(trainer_config, "args")
        labels = [reward.label for reward in plan.stage.rewards]
        check_groups(plan.slots, trainer_config.num_generations, labels, "algorithm", registry)
    environment = EnvironmentSpec(train=() if data is None else data)
    source: Any = ModelSpec(config=None, tokenizer=_in_memory, load=_in_memory)  # type: ignore[arg-type]
    stage = stage_of(plan, environment, source, {})
    return stage if rewards else dataclasses.replace(stage, rewards=[]), trainer_config


def _sections(extras: Extras) -> dict[str, Any]:
    """Return the sections of a recipe for the arguments that are not None."""
    sections: dict[str, Any] = {}
    if extras.speed is not None:
        sections["speed"] = extras.speed
    if extras.generator is not None or extras.speed == NO_SPEED:
        sections["generator"] = extras.generator or "none"
    if extras.critic is not None:
        sections["critic"] = {"kind": extras.critic} if isinstance(extras.critic, str) else dict(extras.critic)
    return sections


def algorithm_of_config(kind: str, args: Any, weights: Mapping[str, float]) -> Algorithm:
    """Return the algorithm that is equivalent to a config of TRL."""
    values = {field: getattr(args, field) for field in decided(kind)}
    about = f"The algorithm of {type(args).__name__}."
    return Algorithm(about=about, source="the arguments", **algorithm_of(kind, values, weights))


def check_consistency(kind: str, args: Any, plan: Plan) -> None:
    """Check that every changed field of the config agrees with the algorithm.

    Raises:
        RecipeError: It names the field, both values, and the place to set it.
    """
    algorithm = plan.stage.body["algorithm"]
    by_algorithm = fields_of(kind, algorithm)
    defaults = {f.name: f.default for f in dataclasses.fields(args)}
    for field in decided(kind):
        value = getattr(args, field)
        if value == defaults[field] or (field in by_algorithm and _is_equal(by_algorithm[field], value)):
            continue
        expected = f"{field}={by_algorithm[field]!r}" if field in by_algorithm else "nothing of that kind"
        problem = f"{kind} has {field}={value!r}, but the algorithm '{algorithm['name']}' has {expected}"
        hint = f"say it once: in `{slot_of(kind, field)}`, or in {kind} without `algorithm=`"
        raise RecipeError(problem, where=f"args.{field}", hint=hint)


def _is_equal(x: Any, y: Any) -> bool:
    return tuple(x) == tuple(y) if isinstance(x, list | tuple) else bool(x == y)


def _in_memory() -> Any:
    """Placeholder of an object that is passed to the trainer itself."""


def lora_of(peft_config: Any, model: Any) -> dict[str, Any] | None:
    """Return the fields of the policy's LoRA adapter that differ from PEFT's defaults; None without one."""
    from peft import LoraConfig

    config = peft_config or getattr(model, "peft_config", {}).get("default")
    if not isinstance(config, LoraConfig):
        return None
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(LoraConfig):
        value = getattr(config, field.name, None)
        default = field.default if field.default is not dataclasses.MISSING else None
        if field.init and field.name not in _NOT_FOR_A_CRITIC and value not in (default, {}, [], None):
            fields[field.name] = sorted(value) if isinstance(value, set) else value
    return fields
