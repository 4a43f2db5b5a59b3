"""Composition of a recipe and the registry into stages, with data sets built, and back to a recipe with every value."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar, cast

from rlm_plugins.data.successes import described
from rlm_plugins.errors import RecipeError, RlmError
from rlm_plugins.recipe.checks.examples import check_indexable, check_refill, check_rows, check_size, check_stage_texts
from rlm_plugins.recipe.checks.group_size import check_groups
from rlm_plugins.recipe.checks.part_needs import check_config_rules, check_rows_fit, iter_parts
from rlm_plugins.recipe.checks.required_columns import (
    check_columns,
    check_environment,
    check_images,
    check_multi_turn_parts,
    check_parts,
    check_source_columns,
    check_trainer_columns,
    columns,
)
from rlm_plugins.recipe.document import Recipe
from rlm_plugins.recipe.paths import Path, format_path, leaves, prefixed_address
from rlm_plugins.recipe.resolve import Plan, located, plans_of, symbols
from rlm_plugins.recipe.stage_sections import check_copied, check_frozen
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
from rlm_plugins.registry.protocols import Evaluates, PreparesExamples, columns_of, product_of, refused_by
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
        speed=plan.speed,
        generator=plan.generator,
        extensions=plan.extensions,
        place=Place(earlier=earlier),
    )


Spec = TypeVar("Spec")


def build_environment(
    plan: Plan,
    built: dict[str, EnvironmentSpec],
    earlier: Mapping[str, EnvironmentSpec],
    *,
    held_out_only: bool = False,
) -> EnvironmentSpec:
    """Return the data sets and the environment of a stage, with their examples checked.

    Args:
        plan: The stage.
        built: Environments of earlier stages by their knobs; one with the same knobs is built once.
        earlier: Name of each earlier stage → its data sets.
        held_out_only: True if nothing is trained: training examples may be missing. Without held-out examples those of
            training are evaluated.

    Raises:
        RecipeError: The environment failed, or its examples are invalid.
    """
    key, name = json.dumps(plan.body["environment"]), plan.environment.part.name
    where = format_path((*plan.stage_path, "environment"))
    if key not in built:
        built[key] = _call(plan.environment, EnvironmentSpec, plan.stage_path, "environment")
        if built[key].successes is not None:
            built[key] = described(built[key], earlier)
        if held_out_only:
            built[key] = _with_held_out(built[key])
    trainer: Any = plan.trainer.target
    environment_spec, rewards = (
        _prepared(built[key], trainer, plan.stage_path),
        format_path((*plan.stage_path, "rewards")),
    )
    check_rows(environment_spec, name, where, with_text="demonstration" in columns_of(trainer))
    check_environment(environment_spec, name, where)
    check_trainer_columns(environment_spec, columns_of(trainer), name, where)
    if plan.evaluation is not None and isinstance(trainer, Evaluates):  # it requires the same columns
        check_trainer_columns(environment_spec, columns_of(trainer), name, where, held_out=True)
    if any(plan.slots.values()):
        check_multi_turn_parts(environment_spec, plan.slots, name, format_path((*plan.stage_path, "algorithm")))
    check_source_columns(
        environment_spec, plan.slots["rollouts"], name, format_path((*plan.stage_path, "algorithm", "rollouts"))
    )
    if any(plan.slots.values()) and not plan.slots["rollouts"]:  # a rollout source may add any column
        check_columns(environment_spec, "training", plan.rewards, name, rewards)
    check_parts(_named_parts(plan, rewards), plan.body["model"].get("lora"), environment_spec)
    if plan.evaluation is not None:  # the policy alone answers held-out prompts
        check_columns(environment_spec, "held-out", plan.rewards, name, rewards)
    return environment_spec


def build_suite(plan: Plan) -> dict[str, EnvironmentSpec]:
    """Return the further held-out sets of a stage, with the columns that its rewards require.

    Raises:
        RecipeError: An environment failed, or its examples are invalid.
    """
    suite, rewards = {}, format_path((*plan.stage_path, "rewards"))
    for name, bound in plan.suite.items():
        where = format_path((*plan.stage_path, "evaluation", "suite", name))
        suite[name] = _with_held_out(_call(bound, EnvironmentSpec, plan.stage_path, "environment"))
        check_rows(suite[name], bound.part.name, where)
        check_environment(suite[name], bound.part.name, where)
        check_columns(suite[name], "held-out", plan.rewards, bound.part.name, rewards)
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


def _named_parts(plan: Plan, rewards: str) -> Iterator[tuple[Bound, str]]:
    """Yield rewards and parts of the equation with their addresses; rollout sources are checked before."""
    yield from ((reward.part, f"{rewards}[{number}]") for number, reward in enumerate(plan.rewards))
    for slot, bound, where in iter_parts(plan.slots, format_path((*plan.stage_path, "algorithm"))):
        if slot != "rollouts":
            yield bound, where


def build_source(plan: Plan) -> ModelSpec:
    """Return the source of the first stage's weights; nothing is loaded yet.

    Raises:
        RecipeError: The model part failed.
    """
    assert plan.model is not None
    return _call(plan.model, ModelSpec, plan.stage_path, "model")


def unbuilt_source() -> ModelSpec:
    """Return a model source that cannot be loaded, for stages that only describe a run."""

    def refuse() -> NoReturn:
        raise RlmError("this run has no weights: compose it with build_environment=True")

    return ModelSpec(config=cast(Any, None), tokenizer=refuse, load=refuse, origin="not built")


def _call(bound: Bound, spec_class: type[Spec], stage_path: Path, section: str) -> Spec:
    where, part = format_path((*stage_path, section)), f"{section} '{bound.part.full_name}'"
    try:
        returned = bound.call({})
    except RecipeError as error:  # the error names the section of the part, not the stage
        address = error.where if not error.where.startswith(section) else format_path(stage_path) + f".{error.where}"
        raise RecipeError(
            error.problem, where=address.lstrip(".") or where, allowed=error.allowed, hint=error.hint
        ) from error.__cause__
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


def explain_origins(recipe: Recipe, stages: Sequence[Stage]) -> list[tuple[str, Any, str]]:
    """Return (address, value, origin) of every value of the composed stages, in the order of the recipe.

    Origins: ``recipe.yaml line 12``, ``command line``, ``algorithm grpo``, ``default of clip``, ….
    """
    entries = []
    for stage, place in zip(stages, recipe.stage_paths, strict=True):
        for path, value in leaves(dict(stage.body), place):
            entries.append((format_path(path), value, recipe.origins.get(format_path(path), "default")))
    return entries
