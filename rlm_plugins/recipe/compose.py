"""Composition of a recipe and the registry into stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.adapter_kinds import LORA, config_class, fields_of_adapter, kind_of
from rlm_plugins.recipe.build import build_environment, build_source, build_suite, unbuilt_source
from rlm_plugins.recipe.checks.critic import check_copied, check_frozen
from rlm_plugins.recipe.checks.data_needs import iter_parts
from rlm_plugins.recipe.checks.dataset import check_indexable, check_refill, check_size
from rlm_plugins.recipe.checks.group_size import check_groups
from rlm_plugins.recipe.checks.part_rules import check_config_rules
from rlm_plugins.recipe.checks.rollouts import check_rows_fit
from rlm_plugins.recipe.checks.stage_texts import check_stage_texts
from rlm_plugins.recipe.checks.vision import check_images
from rlm_plugins.recipe.document import Recipe
from rlm_plugins.recipe.installed import check_installed
from rlm_plugins.recipe.paths import format_path
from rlm_plugins.recipe.plans import located, plans_of, symbols
from rlm_plugins.recipe.resolve import Plan
from rlm_plugins.recipe.trainer_defaults import trainer_defaults
from rlm_plugins.recipe.trainer_settings import (
    NOT_IN_A_CRITIC,
    NOT_IN_A_RECIPE,
    check,
)
from rlm_plugins.registry import Registry
from rlm_plugins.registry.protocols import product_of, refused_by
from rlm_plugins.specs import EnvironmentSpec, ModelSpec
from rlm_plugins.stage import Place, Stage


def compose(
    recipe: Recipe,
    registry: Registry,
    *,
    build_environment: bool = True,
    held_out_only: bool = False,
    source: ModelSpec | None = None,
) -> list[Stage]:
    """Return every stage of a recipe, validated and bound; no weight is loaded.

    First names, knobs and requirements of all stages are checked (nothing heavy is imported). Then `trainer:` and
    `lora:` are (TRL and PEFT are imported); last the environments are built and their examples checked.

    Args:
        recipe: Its `origins` are completed with the defaults of algorithms and parts.
        registry: The parts.
        build_environment: True to call the environment and model parts. Otherwise the stages only describe a run:
            their data sets are empty, and weights cannot be loaded.
        held_out_only: True if nothing is trained: the stages need no training examples.
        source: The model in place of the recipe's.

    Raises:
        RecipeError: It names the address and the line.
        PluginError: A plugin breaks the contract of its hook.
    """
    with located(recipe):
        return _compose(recipe, registry, build_environment, held_out_only, source)


def _compose(
    recipe: Recipe, registry: Registry, build: bool, held_out_only: bool, source: ModelSpec | None
) -> list[Stage]:
    plans = plans_of(recipe, registry)
    configs = [_check_settings(plan, registry) for plan in plans]
    environments: dict[str, EnvironmentSpec] = {}
    named: dict[str, EnvironmentSpec] = {}
    source = source or (build_source(plans[0]) if build else unbuilt_source())
    stages = []
    earlier: dict[str, Any] = {}
    for plan, config in zip(plans, configs, strict=True):
        environment_spec, suite = EnvironmentSpec(train=()), dict[str, EnvironmentSpec]()
        if build:
            environment_spec = build_environment(plan, environments, named, held_out_only=held_out_only)
            named |= dict.fromkeys((plan.name, plan.name[3:]), environment_spec)
            suite = build_suite(plan)
            if not held_out_only:
                check_size(environment_spec, config, format_path((*plan.stage_path, "environment")))
            _check_prompt_source(plan, environment_spec)
            produces = product_of(plan.trainer.target)
            check_images(
                environment_spec, source, produces, plan.critic, format_path((*plan.stage_path, "environment"))
            )
            check_stage_texts(plan, environment_spec, source, None if held_out_only else config)
            check_copied(plan.critic, source, format_path((*plan.stage_path, "critic")))
            check_frozen(plan.body["model"].get("lora"), source, format_path((*plan.stage_path, "model")))
            check_installed(config, format_path((*plan.stage_path, "trainer")))
            if not len(environment_spec.test):
                plan.evaluation = plan.body["evaluation"] = None
        stage = replace(stage_of(plan, environment_spec, source, dict(earlier)), suite=suite)
        if build:
            for setting in plan.extensions.settings.values():
                if setting.check_stage is not None:
                    setting.check_stage(stage, config, format_path((*plan.stage_path, "trainer")))
        stages.append(stage)
        earlier |= dict.fromkeys((plan.name, plan.name[3:]), plan.body["model"].get("lora"))
    return stages


def _check_settings(plan: Plan, registry: Registry) -> Any:
    """Check the settings of a stage: the third check. Return the trainer's config."""
    trainer: Any = plan.trainer.target
    if lora := plan.body["model"].get("lora"):
        where = format_path((*plan.stage_path, "model", "lora"))
        if product_of(trainer) != "policy" and kind_of(lora) != LORA:
            problem = f"the adapter of a {product_of(trainer).replace('_', ' ')} is LoRA, got {kind_of(lora)}"
            raise RecipeError(problem, where=where)
        check(config_class(lora, where), fields_of_adapter(lora), where, refused=NOT_IN_A_RECIPE)
    if plan.critic is not None and plan.critic.lora:
        from peft import LoraConfig

        check(LoraConfig, plan.critic.lora, format_path((*plan.stage_path, "critic", "lora")), refused=NOT_IN_A_CRITIC)
    config = check(
        trainer.config_class(),
        plan.body["trainer"],
        format_path((*plan.stage_path, "trainer")),
        refused=refused_by(trainer),
        project_defaults=trainer_defaults(),
        added=plan.extensions.settings,
    )
    check_rows_fit(plan.slots, config, plan.stage_path)
    check_config_rules(plan.slots, config, format_path((*plan.stage_path, "algorithm")))
    if hasattr(config, "num_generations") and any(symbols(plan).values()):
        labels, where = [reward.label for reward in plan.rewards], format_path((*plan.stage_path, "algorithm"))
        check_groups(plan.slots, config.num_generations, labels, where, registry)
    return config


def _check_prompt_source(plan: Plan, environment_spec: EnvironmentSpec) -> None:
    """Check that prompts can be sampled by index, if a part selects them during training."""
    from rlm_plugins.rollout.prompt_source import reason

    where = format_path((*plan.stage_path, "algorithm"))
    parts = [part for _, part, _ in iter_parts(plan.slots, where)]
    check_indexable(environment_spec, reason(parts), plan.body["environment"]["name"], where)
    check_refill(environment_spec, reason([part for part in parts if part.options.get("refill")]), f"{where}.filters")


def stage_of(plan: Plan, environment_spec: EnvironmentSpec, source: ModelSpec, earlier: Mapping[str, Any]) -> Stage:
    """Return a resolved stage with its data and its weights."""
    equation = None
    if any(symbols(plan).values()):
        from rlm_plugins.equation import Equation

        equation = Equation.from_slots(plan.slots)
    return Stage(
        name=plan.name,
        body=plan.body,
        trainer=plan.trainer.target,
        settings=plan.body["trainer"],
        environment_spec=environment_spec,
        source=source,
        lora=plan.body["model"].get("lora"),
        rewards=plan.rewards,
        evaluation=plan.evaluation,
        equation=equation,
        sampler=plan.slots["sampler"],
        rollouts=plan.slots["rollouts"],
        critic=plan.critic,
        generator=plan.generator,
        extensions=plan.extensions,
        place=Place(earlier=earlier),
    )
