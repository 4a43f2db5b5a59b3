"""Arguments of TRL's trainers as a stage, with the config, the options and the reward functions of its trainer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import trl

from rlm_plugins import recipe
from rlm_plugins.api import arguments
from rlm_plugins.builtin.rewards import check_trl_columns
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.checks.part_needs import check_with_config
from rlm_plugins.recipe.compose import stage_of
from rlm_plugins.recipe.resolve import Plan, located, plans_of
from rlm_plugins.recipe.trainer_settings import NOT_IN_A_RECIPE, check_installed
from rlm_plugins.recipe.trl_fields import GRPO, RLOO, algorithm_of, decided, fields_of, slot_of
from rlm_plugins.registry import Registry
from rlm_plugins.rewards.fault import FaultLog
from rlm_plugins.rewards.trl_adapter import trl_reward
from rlm_plugins.rollout.group_layout import check_whole_groups
from rlm_plugins.specs import Algorithm, EnvironmentSpec, ModelSpec
from rlm_plugins.stage import Stage
from rlm_plugins.trainer.config import GRPOConfig
from rlm_plugins.trainer.options import TrainerOptions, options_of

NO_SPEED = "none"
_NOT_FOR_A_CRITIC = (*NOT_IN_A_RECIPE, "revision", "task_type", "auto_mapping", "runtime_config", "peft_version")
"""Fields of the policy's adapter that do not apply to the critic's."""


def prepared(
    plugins: Sequence[str | Path],
    sections: Mapping[str, Any],
    args: Any,
    model: Any,
    reward_funcs: Any,
    peft_config: Any,
    data: Any,
    *,
    generates: bool,
) -> tuple[Stage, GRPOConfig, TrainerOptions, list[Any]]:
    """Return the stage of a trainer with TRL's arguments, its config, its options, and TRL's reward functions.

    With `generates` the policy completes the prompts: the rewards receive the columns of the data.
    """
    stage, config = _stage_from(plugins, sections, args, reward_funcs, lora_of(peft_config, model), data)
    if stage.equation is None:
        hint = "see `rlm explain algorithms`"
        raise RecipeError("expected an algorithm with an equation", where="algorithm", hint=hint)
    check_whole_groups(stage.rollouts, config.num_generations, config.generation_batch_size // config.world_size)
    functions, columns = arguments.as_list(reward_funcs), getattr(data, "column_names", None)
    if isinstance(columns, list) and generates:
        for number, function in enumerate(f for f in functions if callable(f) and not arguments.is_model(f)):
            check_trl_columns(function, columns, where=f"reward_funcs[{number}]")
    faults = FaultLog()
    rewards = zip(functions, stage.rewards, strict=True)
    reward_functions = [
        function if arguments.is_model(function) else trl_reward(reward, faults) for function, reward in rewards
    ]
    return stage, config, options_of(stage, config, data, faults), reward_functions


def _stage_from(
    plugins: Sequence[str | Path],
    sections: Mapping[str, Any],
    args: Any,
    reward_funcs: Any,
    adapter: Any,
    data: Any,
) -> tuple[Stage, GRPOConfig]:
    """Return the stage of a trainer, and its config."""
    kind, registry = RLOO if isinstance(args, trl.RLOOConfig) else GRPO, Registry(load=plugins)
    rewards = arguments.reward_entries(registry, reward_funcs, args.reward_weights)
    weights = {entry["as"]: entry["weight"] for entry in rewards}
    default = algorithm_of_config(kind, args, weights)
    section = arguments.named_algorithm(registry, sections.get("algorithm"), default)
    arguments.name_only_reward(registry, section, list(weights))
    model: dict[str, Any] = {"name": arguments.add(registry, "model", _in_memory, "model")}
    if adapter is not None:
        model["lora"] = adapter
    data_part = {"name": arguments.add(registry, "environment", _in_memory, "train_dataset")}
    mapping = {
        "model": model,
        "environment": data_part,
        "rewards": rewards or [{"name": arguments.add(registry, "rewards", arguments.of_environment, "environment")}],
        "trainer": {"use_vllm": args.use_vllm},
        **sections,
        "algorithm": section,
    }
    document = recipe.of_mapping(mapping)
    with located(document):
        (plan,) = plans_of(document, registry)
        if sections.get("algorithm") is not None:
            check_consistency(kind, args, plan)
        fixed = {name: value for name, value in plan.stage.settings.items() if name != "use_vllm" or value}
        trainer_config = converted(args, plan, fixed)
        check_with_config(plan, trainer_config, registry)
        check_installed(trainer_config, "args")
    environment = EnvironmentSpec(train=() if data is None else data)
    source: Any = ModelSpec(config=None, tokenizer=_in_memory, load=_in_memory)  # type: ignore[arg-type]
    stage = stage_of(plan, environment, source, {})
    return stage if rewards else dataclasses.replace(stage, rewards=[]), trainer_config


def converted(args: Any, plan: Plan, fixed: Mapping[str, Any]) -> GRPOConfig:
    """Return our config with the values of TRL's: what the equation decides has TRL's default there."""
    result = object.__new__(GRPOConfig)  # the values are checked and derived already: no second `__post_init__`
    defaults = {f.name: f.default for f in dataclasses.fields(GRPOConfig)}
    result.__dict__.update(
        {"added": {}, **defaults, **vars(args), **{name: defaults[name] for name in decided(GRPO)}, **fixed}
    )
    slots = [slot if isinstance(slot, list) else [slot] for slot in plan.slots.values()]
    parts = [bound for bound in chain.from_iterable(slots) if bound]
    reads_reference = any(bound.part.requires("ref_logp") for bound in parts)
    result.beta = 1.0 if reads_reference else 0.0  # TRL's switch for the reference pass, not a coefficient
    result.reward_weights = (
        [reward.weight for reward in plan.stage.rewards] if args.reward_weights is not None else None
    )
    if any("rollout_logp" in weight.part.required_data for weight in plan.slots["token_weights"]):
        result.vllm_importance_sampling_correction = False  # TRL's would weigh again
    return result


def sections_of(algorithm: Any, speed: Any, critic: Any, generator: Any) -> dict[str, Any]:
    """Return the sections of a recipe for the arguments that are not None, and the algorithm."""
    sections = {"algorithm": algorithm, **({} if speed is None else {"speed": speed})}
    if generator is not None or speed == NO_SPEED:
        sections["generator"] = generator or "none"
    if critic is not None:
        sections["critic"] = {"kind": critic} if isinstance(critic, str) else dict(critic)
    return sections


def algorithm_of_config(kind: str, args: Any, weights: Mapping[str, float]) -> Algorithm:
    """Return the algorithm that is equivalent to a config of TRL."""
    values = {field: getattr(args, field) for field in decided(kind)}
    about = f"The algorithm of {type(args).__name__}."
    return Algorithm(about=about, source="the arguments", **algorithm_of(kind, values, weights))


def check_consistency(kind: str, args: Any, plan: Plan) -> None:
    """Check that every changed field of the config agrees with the algorithm."""
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
