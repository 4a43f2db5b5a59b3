"""Composition of a recipe and the registry into stages, with data sets built, and back to a recipe with every value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from rlm_plugins.data.successes import described
from rlm_plugins.errors import RecipeError
from rlm_plugins.lazy import peft
from rlm_plugins.recipe.checks.examples import check_prompt_source, check_rows, check_size, check_stage_texts
from rlm_plugins.recipe.checks.part_needs import check_with_config
from rlm_plugins.recipe.checks.required_columns import (
    check_columns,
    check_data,
    check_environment,
    check_images,
    columns,
)
from rlm_plugins.recipe.document import Recipe
from rlm_plugins.recipe.paths import Path, format_path, leaves, prefixed_address
from rlm_plugins.recipe.resolve import Plan, located, plans_of
from rlm_plugins.recipe.stage_sections import check_quantized
from rlm_plugins.recipe.trainer_settings import (
    LORA,
    NOT_IN_A_CRITIC,
    NOT_IN_A_RECIPE,
    check,
    check_installed,
    config_class,
    fields_of_adapter,
    kind_of,
    trainer_defaults,
)
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import PreparesExamples, columns_of, product_of, refused_by
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
        plans = plans_of(recipe, registry)
        configs = [_check_settings(plan, registry) for plan in plans]
        if source is None and build_environment:
            assert plans[0].model is not None
            source = _call(plans[0].model, ModelSpec, plans[0].stage_path, "model")
        environments: dict[str, EnvironmentSpec] = {}
        earlier: dict[str, Stage] = {}
        stages = []
        for plan, config in zip(plans, configs, strict=True):
            adapters = {name: stage.lora for name, stage in earlier.items()}
            stage = stage_of(plan, EnvironmentSpec(train=()), source or plan.stage.source, adapters)
            if build_environment:
                named = {name: stage.environment_spec for name, stage in earlier.items()}
                environment_spec = _environment_of(plan, environments, named, held_out_only=held_out_only)
                stage = replace(stage, environment_spec=environment_spec, suite=build_suite(plan))
                _check_built(plan, stage, config, held_out_only)
                if not len(environment_spec.test):
                    stage = replace(stage, evaluation=None, body={**stage.body, "evaluation": None})
                for setting in stage.extensions.settings.values():
                    if setting.check_stage is not None:
                        setting.check_stage(stage, config, plan.address("trainer"))
            stages.append(stage)
            earlier |= dict.fromkeys((stage.name, stage.name[3:]), stage)
        return stages


def _check_built(plan: Plan, stage: Stage, config: Any, held_out_only: bool) -> None:
    """Check data sets and model of a stage against one another and against its trainer."""
    where = plan.address("environment")
    if not held_out_only:
        check_size(stage.environment_spec, config, where)
        for section in stage.sections.values():
            section.check_stage(stage, plan.address("rewards"))
    check_prompt_source(plan, stage.environment_spec)
    check_images(stage.environment_spec, stage.source, product_of(stage.trainer), stage.critic, where)
    check_stage_texts(stage, None if held_out_only else config, where)
    check_quantized(stage, plan.address("critic"), plan.address("model"))
    check_installed(config, plan.address("trainer"))


def _check_settings(plan: Plan, registry: Registry) -> Any:
    """Check the settings of a stage: the third check. Return the trainer's config."""
    stage, trainer = plan.stage, plan.stage.trainer
    if lora := stage.lora:
        where = plan.address("model", "lora")
        if product_of(trainer) != "policy" and kind_of(lora) != LORA:
            problem = f"the adapter of a {product_of(trainer).replace('_', ' ')} is LoRA, got {kind_of(lora)}"
            raise RecipeError(problem, where=where)
        check(config_class(lora, where), fields_of_adapter(lora), where, refused=NOT_IN_A_RECIPE)
    if stage.critic is not None and stage.critic.lora:
        check(peft.LoraConfig, stage.critic.lora, plan.address("critic", "lora"), refused=NOT_IN_A_CRITIC)
    config = check(
        trainer.config_class(),
        stage.settings,
        plan.address("trainer"),
        refused=refused_by(trainer),
        project_defaults=trainer_defaults(),
        added=stage.extensions.settings,
    )
    check_with_config(plan, config, registry)
    return config


def stage_of(plan: Plan, environment_spec: EnvironmentSpec, source: ModelSpec, earlier: Mapping[str, Any]) -> Stage:
    """Return a resolved stage with its data and its weights."""
    equation = None
    if plan.has_symbols:
        from rlm_plugins.equation.equation import Equation

        equation = Equation.from_slots(plan.slots)
    place = Place(earlier=earlier)
    return replace(plan.stage, environment_spec=environment_spec, source=source, equation=equation, place=place)


Spec = TypeVar("Spec")


def _environment_of(
    plan: Plan,
    built: dict[str, EnvironmentSpec],
    earlier: Mapping[str, EnvironmentSpec],
    *,
    held_out_only: bool = False,
) -> EnvironmentSpec:
    """Return the data sets and the environment of a stage, with their examples checked.

    Environments in `built` are reused; with `held_out_only` one kind of examples may stand in for the other.
    """
    key, name = json.dumps(plan.stage.body["environment"]), plan.environment.part.name
    where = plan.address("environment")
    if key not in built:
        built[key] = _call(plan.environment, EnvironmentSpec, plan.stage_path, "environment")
        if built[key].successes is not None:
            built[key] = described(built[key], earlier)
        if held_out_only:
            built[key] = _with_held_out(built[key])
    trainer: Any = plan.stage.trainer
    environment_spec = _prepared(built[key], trainer, plan.stage_path)
    check_rows(environment_spec, name, where, with_text="demonstration" in columns_of(trainer))
    check_data(plan, environment_spec)
    return environment_spec


def build_suite(plan: Plan) -> dict[str, EnvironmentSpec]:
    """Return the further held-out sets of a stage, with the columns that its rewards require."""
    suite, rewards = {}, plan.address("rewards")
    for name, bound in plan.suite.items():
        where = plan.address("evaluation", "suite", name)
        suite[name] = _with_held_out(_call(bound, EnvironmentSpec, plan.stage_path, "environment"))
        check_rows(suite[name], bound.part.name, where)
        check_environment(suite[name], bound.part.name, where)
        check_columns(suite[name], "held-out", plan.stage.rewards, bound.part.name, rewards)
    return suite


def _with_held_out(environment_spec: EnvironmentSpec) -> EnvironmentSpec:
    """Return an environment in which missing training or held-out examples are replaced by the other ones."""
    train, test = environment_spec.train, environment_spec.test
    if columns(train) == []:
        return replace(environment_spec, train=test)
    return environment_spec if len(test) else replace(environment_spec, test=train)  # type: ignore[arg-type]


def _prepared(environment_spec: EnvironmentSpec, trainer: Any, stage_path: Path) -> EnvironmentSpec:
    """Return the data sets, converted by the trainer's `prepare` if it has one."""
    if not isinstance(trainer, PreparesExamples):
        return environment_spec
    with prefixed_address(format_path(stage_path)):
        train, test = trainer.prepare(environment_spec.train), trainer.prepare(environment_spec.test)
    if train is environment_spec.train and test is environment_spec.test:
        return environment_spec
    return replace(environment_spec, train=train, test=test)


def _call(bound: Bound, spec_class: type[Spec], stage_path: Path, section: str) -> Spec:
    where, part = format_path((*stage_path, section)), f"{section} '{bound.part.full_name}'"
    try:
        returned = bound.call({})
    except RecipeError as error:  # the error names the section of the part, not the stage
        address = error.where if not error.where.startswith(section) else format_path(stage_path) + f".{error.where}"
        moved = error.at(address.lstrip(".") or where)
        raise moved from moved.__cause__
    except (Exception, SystemExit) as error:
        raise RecipeError(f"the {part} failed: {type(error).__name__}: {error}", where=where) from error
    if not isinstance(returned, spec_class):
        problem = f"expected rlm_plugins.specs.{spec_class.__name__} from the {part}, got {type(returned).__name__}"
        raise RecipeError(problem, where=where)
    return returned


def resolved(stages: Sequence[Stage], recipe: Recipe) -> dict[str, Any]:
    """Return a recipe with every value: it loads from any folder, and gives the same run."""
    plugins = {"load": [str(path) for path in recipe.load], "block": list(recipe.block)}
    plugins["packages"] = list(recipe.packages)
    non_empty = {key: value for key, value in plugins.items() if value}
    head = {"name": recipe.name, **({"plugins": non_empty} if non_empty else {})}
    bodies = [dict(stage.body) for stage in stages]
    return {**head, "stages": bodies} if recipe.stage_paths != [()] else {**head, **bodies[0]}


def explain_origins(recipe: Recipe, stage: Stage, place: Path) -> list[dict[str, Any]]:
    """Return ``path``, ``value`` and ``origin`` (``recipe.yaml line 12``, …) of every value of a composed stage."""
    values = ((format_path(path), value) for path, value in leaves(dict(stage.body), place))
    return [{"path": path, "value": value, "origin": recipe.origins.get(path, "default")} for path, value in values]
