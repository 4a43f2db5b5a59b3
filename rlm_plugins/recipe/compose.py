"""Composition of a recipe and the registry into stages, and back into a recipe with every value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.adapter_kinds import LORA, config_class, fields_of_adapter, kind_of
from rlm_plugins.recipe.build import build_environment, build_source, build_suite, unbuilt_source
from rlm_plugins.recipe.checks.critic import check_copied, check_frozen
from rlm_plugins.recipe.checks.data_needs import check_symbols, standing
from rlm_plugins.recipe.checks.dataset import check_drawn, check_refill, check_size, stands_at
from rlm_plugins.recipe.checks.earlier_stages import check_earlier_stages
from rlm_plugins.recipe.checks.examples import check_content
from rlm_plugins.recipe.checks.group_size import check_groups, check_refills
from rlm_plugins.recipe.checks.names import check_reward_names
from rlm_plugins.recipe.checks.part_rules import check_suits
from rlm_plugins.recipe.checks.rollouts import check_rows_fit, check_sources
from rlm_plugins.recipe.checks.vision import check_images
from rlm_plugins.recipe.document import Recipe
from rlm_plugins.recipe.installed import check_installed
from rlm_plugins.recipe.paths import Path, leaves, spell
from rlm_plugins.recipe.resolve import Plan, resolve
from rlm_plugins.recipe.trainer_defaults import trainer_defaults
from rlm_plugins.recipe.trainer_settings import (
    NOT_IN_A_CRITIC,
    NOT_IN_A_RECIPE,
    check,
)
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import columns_of, needs_equation, product_of, refused_by
from rlm_plugins.specs import EnvironmentSpec, ModelSpec
from rlm_plugins.stage import Stage


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
    registry.require_sound()
    with located(recipe):
        return _compose(recipe, registry, build_environment, held_out_only, source)


def check_names(recipe: Recipe, registry: Registry) -> None:
    """Check names, knobs and requirements of all stages, before torch is imported."""
    registry.require_sound()
    with located(recipe):
        plans_of(recipe, registry)


@contextmanager
def located(recipe: Recipe, place: Path = ()) -> Iterator[None]:
    """Add the line of the recipe to the address of an error, and the stage at `place` before it."""
    try:
        with stands_at(spell(place)):
            yield
    except RecipeError as error:
        located = recipe.locate(error)
        raise located from located.__cause__


def plans_of(recipe: Recipe, registry: Registry) -> list[Plan]:
    """Return the stages of a recipe, resolved, with names and requirements checked."""
    plans = [resolve(recipe, registry, number) for number in range(len(recipe.bodies))]
    for plan in plans:
        check_sources(plan.slots, plan.place)
        if any(_symbols(plan).values()) or needs_equation(plan.engine.target):
            check_symbols(plan.slots, len(plan.rewards), plan.place, registry)
            check_refills(plan.slots["filters"], spell((*plan.place, "algorithm", "filters")))
        check_reward_names(_addressed(plan), [reward.label for reward in plan.rewards])
    no_critic = "no part of the algorithm requires `values`, so there is no critic"
    remedy = "`algorithm: ppo`, or `advantage: gae` with the penalty `value_loss`"
    _check_is_used(recipe, plans, "critic", [plan.critic is not None for plan in plans], no_critic, remedy)
    own = "the trainer of this stage has a loss of its own, and no optimizations of ours"
    equations = [plan.slots.get("policy_loss") is not None for plan in plans]
    _check_is_used(recipe, plans, "speed", equations, own, "leave it out here")
    generating = [plan.generator is not None for plan in plans]
    _check_is_used(recipe, plans, "generator", generating, "this trainer generates nothing", "leave it out here")
    check_earlier_stages(plans)
    return plans


def _addressed(plan: Plan) -> Iterator[tuple[Bound, str]]:
    """Yield the parts that may name rewards, each with its address."""
    yield from ((bound, where) for _, bound, where in standing(plan.slots, spell((*plan.place, "algorithm"))))
    yield from ((bound, spell((*plan.place, "callbacks", i))) for i, bound in enumerate(plan.callbacks))


def _check_is_used(
    recipe: Recipe, plans: list[Plan], section: str, using: Sequence[bool], problem: str, hint: str
) -> None:
    """Check that a section has an effect: of what stages share, one of them must use it.

    Args:
        recipe: The recipe.
        plans: Its stages.
        section: A key of a stage.
        using: Per stage, True if it is used.
        problem: Why a stage does not use it.
        hint: What would use it.
    """
    origin = recipe.origins.get(section)
    for place, body, is_used in zip(recipe.places, recipe.bodies, using, strict=True):
        where = spell((*place, section))
        shared = any(using) and origin is not None and recipe.origins.get(where) == origin
        if body.get(section) is not None and not is_used and not shared:
            raise RecipeError(problem, where=where, hint=hint)


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
                check_size(environment_spec, config, spell((*plan.place, "environment")))
            _check_prompt_source(plan, environment_spec)
            produces = product_of(plan.engine.target)
            check_images(environment_spec, source, produces, plan.critic, spell((*plan.place, "environment")))
            _check_examples(plan, environment_spec, source, None if held_out_only else config)
            check_copied(plan.critic, source, spell((*plan.place, "critic")))
            check_frozen(plan.body["model"].get("lora"), source, spell((*plan.place, "model")))
            check_installed(config, spell((*plan.place, "trainer")))
            if not len(environment_spec.test):
                plan.evaluation = plan.body["evaluation"] = None
        stages.append(replace(stage_of(plan, environment_spec, source, dict(earlier)), suite=suite))
        earlier |= dict.fromkeys((plan.name, plan.name[3:]), plan.body["model"].get("lora"))
    return stages


def _check_examples(plan: Plan, environment_spec: EnvironmentSpec, source: ModelSpec, config: Any) -> None:
    """Check the content of all examples, and their lengths by the tokenizer of the model."""
    from rlm_plugins.data.text_lengths import check_texts
    from rlm_plugins.data.tokenizer_check import positions_of
    from rlm_plugins.data.written_lengths import warn_of_long_texts

    where, name = spell((*plan.place, "environment")), plan.body["environment"]["name"]
    generated = isinstance(environment_spec.train, list | tuple)
    check_content(environment_spec, plan.rewards, name, where, generated=generated)
    try:
        tokenizer = source.tokenizer()
    except Exception:  # loading the model reports it, with its reason
        return
    positions = positions_of(source.config)
    completion = None if environment_spec.multi_turn else getattr(config, "max_completion_length", None)
    settings = plan.body["trainer"]
    explicit, template = "max_completion_length" in settings, settings.get("chat_template_kwargs")
    limits: dict[str, Any] = {"explicit": explicit, "template": template}
    check_texts(tokenizer, environment_spec.train, positions, completion, where, **limits)
    check_texts(tokenizer, environment_spec.test, positions, completion, where, **limits, kind="held-out")
    warn_of_long_texts(tokenizer, environment_spec.train, _written(plan, completion, config), where)


def _written(plan: Plan, completion: int | None, config: Any) -> dict[str, int]:
    """Return the columns that the policy learns to write, each with its longest text in tokens."""
    read = {*columns_of(plan.engine.target)}.union(*(columns_of(each.target) for each in plan.slots["rollouts"]))
    longest = completion or getattr(config, "max_length", None)
    limits: dict[str, int | None] = dict.fromkeys(sorted(read & {"demonstration", "completion"}), longest)
    rewards = [reward.part.part for reward in plan.rewards]
    if any(part.name.endswith("accuracy") and "answer" in part.needs for part in rewards):
        limits["answer"] = completion
    return {name: limit for name, limit in limits.items() if limit}


def _check_settings(plan: Plan, registry: Registry) -> Any:
    """Check the settings of a stage: the third check. Return the trainer's config."""
    engine: Any = plan.engine.target
    if lora := plan.body["model"].get("lora"):
        where = spell((*plan.place, "model", "lora"))
        if product_of(engine) != "policy" and kind_of(lora) != LORA:
            problem = f"the adapter of a {product_of(engine).replace('_', ' ')} is LoRA, got {kind_of(lora)}"
            raise RecipeError(problem, where=where)
        check(config_class(lora, where), fields_of_adapter(lora), where, refused=NOT_IN_A_RECIPE)
    if plan.critic is not None and plan.critic.lora:
        from peft import LoraConfig

        check(LoraConfig, plan.critic.lora, spell((*plan.place, "critic", "lora")), refused=NOT_IN_A_CRITIC)
    config = check(
        engine.config_class(),
        plan.body["trainer"],
        spell((*plan.place, "trainer")),
        refused=refused_by(engine),
        house=trainer_defaults(),
    )
    check_rows_fit(plan.slots, config, plan.place)
    check_suits(plan.slots, config, spell((*plan.place, "algorithm")))
    if hasattr(config, "num_generations") and any(_symbols(plan).values()):
        labels, where = [reward.label for reward in plan.rewards], spell((*plan.place, "algorithm"))
        check_groups(plan.slots, config.num_generations, labels, where, registry)
    return config


def _symbols(plan: Plan) -> dict[str, Any]:
    """Return the slots of the equation, without prompts and rollout sources."""
    return {slot: chosen for slot, chosen in plan.slots.items() if slot not in ("sampler", "rollouts")}


def _check_prompt_source(plan: Plan, environment_spec: EnvironmentSpec) -> None:
    """Check that prompts can be sampled by index, if a part selects them during training."""
    from rlm_plugins.rollout.prompt_source import reason

    where = spell((*plan.place, "algorithm"))
    parts = [part for _, part, _ in standing(plan.slots, where)]
    check_drawn(environment_spec, reason(parts), plan.body["environment"]["name"], where)
    check_refill(environment_spec, reason([part for part in parts if part.beside.get("refill")]), f"{where}.filters")


def stage_of(plan: Plan, environment_spec: EnvironmentSpec, source: ModelSpec, earlier: Mapping[str, Any]) -> Stage:
    """Return a resolved stage with its data and its weights."""
    equation = None
    if any(_symbols(plan).values()):
        from rlm_plugins.step import Equation

        equation = Equation.of(plan.slots)
    return Stage(
        name=plan.name,
        body=plan.body,
        engine=plan.engine.target,
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
        callbacks=plan.callbacks,
        capsule=plan.capsule,
        earlier=earlier,
    )


# -- back to a recipe


def resolved(stages: Sequence[Stage], recipe: Recipe) -> dict[str, Any]:
    """Return a recipe with every value: it loads from any folder, and gives the same run."""
    plugins = {"load": [str(path) for path in recipe.load], "block": list(recipe.block)}
    plugins["packages"] = list(recipe.packages)
    said = {key: value for key, value in plugins.items() if value}
    head = {"name": recipe.name, **({"plugins": said} if said else {})}
    bodies = [dict(stage.body) for stage in stages]
    return {**head, "stages": bodies} if recipe.places != [()] else {**head, **bodies[0]}


def explain_origins(recipe: Recipe, stages: Sequence[Stage]) -> list[tuple[str, Any, str]]:
    """Return (address, value, origin) of every value of the composed stages, in the order of the recipe.

    Origins: ``recipe.yaml line 12``, ``command line``, ``algorithm grpo``, ``default of clip``, ….
    """
    found = []
    for stage, place in zip(stages, recipe.places, strict=True):
        for path, value in leaves(dict(stage.body), place):
            found.append((spell(path), value, recipe.origins.get(spell(path), "default")))
    return found
