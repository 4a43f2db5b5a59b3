"""Resolution of the stages: names become parts, algorithms are merged, every knob is explicit.

The second of the three checks: names, knobs, and what parts require. Nothing is built, and nothing heavy is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import pydantic_core

from rlm_plugins.equation.glossary import suggest
from rlm_plugins.errors import RecipeError, RlmError, nearest
from rlm_plugins.recipe.checks.part_needs import check_needs, check_plan, check_unused_slots, provided_data
from rlm_plugins.recipe.document import Recipe
from rlm_plugins.recipe.part_lookup import HOOK_OF, Finder, absolute_settings, resolve_model_name, stable_name
from rlm_plugins.recipe.paths import Path, format_path, position, prefixed_address
from rlm_plugins.recipe.sections import KEYS, MANY
from rlm_plugins.recipe.stage_sections import (
    critic_of,
    engine_of,
    evaluation_of,
    generates,
    generator_of,
    labels_of,
    rewards_of,
)
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound, Part
from rlm_plugins.registry.protocols import Produces, needs_equation, product_of
from rlm_plugins.registry.setting import Setting
from rlm_plugins.specs import EnvironmentSpec, ModelSpec, Spec
from rlm_plugins.stage import Extensions, Reward, Stage


@dataclass(frozen=True)
class Plan:
    """A stage without data, weights and equation, with its address, its slots, and the parts that build the rest."""

    stage: Stage
    stage_path: Path
    slots: dict[str, Any]
    environment: Bound
    suite: dict[str, Bound]
    model: Bound | None

    def address(self, *steps: str | int) -> str:
        """Return the address of a value of this stage, from the top of the recipe."""
        return format_path((*self.stage_path, *steps))

    def uses(self, section: str) -> bool:
        """Return True if the section `critic`, `generator`, `engine` or one of a package has a result in this stage."""
        if section in KEYS:
            return getattr(self.stage, section) is not None
        return self.stage.extensions.sections.get(section) is not None

    @property
    def has_symbols(self) -> bool:
        """True if a slot is filled beside those of prompts and rollout sources."""
        return any(choice for slot, choice in self.slots.items() if slot not in ("sampler", "rollouts"))


def unbuilt_source() -> ModelSpec:
    """Return a model source that cannot be loaded, for stages that only describe a run."""

    def refuse() -> NoReturn:
        raise RlmError("this run has no weights: compose it with build_environment=True")

    return ModelSpec(config=cast(Any, None), tokenizer=refuse, load=refuse, origin="not built")


def resolve(recipe: Recipe, registry: Registry, number: int) -> Plan:
    """Return stage `number` (from 0) of a recipe, resolved; `recipe.origins` gets the defaults."""
    finder = Finder(recipe, registry, number)
    given = finder.stage_dict
    generator, decoding, settings = generator_of(finder)
    engine, engine_dict, settings = engine_of(finder, settings)
    settings = absolute_settings(settings, lambda name: finder.folder("trainer", name))
    title = given.get("name") or given["algorithm"]["name"].rpartition("/")[2]
    resolved: dict[str, Any] = {"name": title} if finder.stage_path else {}
    model, resolved["model"] = _model(finder)
    environment, resolved["environment"] = finder.part("environment", given["environment"], ("environment",))
    rewards, resolved["rewards"] = rewards_of(finder)
    trainer, slots, resolved["algorithm"] = _algorithm(finder, settings)
    critic, section = critic_of(finder, slots, resolved["model"].get("lora"))
    resolved |= section
    if generates(trainer):
        resolved["generator"] = decoding
        resolved |= engine_dict
    resolved["trainer"] = settings
    callbacks, resolved["callbacks"] = finder.part_list("callbacks")
    observers, listed = finder.part_list("observers")
    resolved |= {"observers": listed} if listed else {}
    sections, resolved_sections = _sections(finder, has_equation=slots.get("policy_loss") is not None)
    labels = labels_of(finder, trainer, rewards)
    evaluation, suite, resolved["evaluation"] = evaluation_of(finder, labels)
    resolved |= {"on_divergence": given["on_divergence"]} if given.get("on_divergence") else {}
    resolved |= resolved_sections
    stage = Stage(
        name=f"{number + 1:02d}-{title}",
        body=resolved,
        trainer=trainer.target,
        settings=settings,
        environment_spec=EnvironmentSpec(train=()),
        source=unbuilt_source(),
        lora=resolved["model"].get("lora"),
        rewards=rewards,
        evaluation=evaluation,
        sampler=slots["sampler"],
        rollouts=slots["rollouts"],
        critic=critic,
        generator=generator if generates(trainer) else None,
        engine=engine if generates(trainer) else None,
        extensions=Extensions(callbacks, observers, sections, _settings(finder, trainer, settings)),
    )
    return Plan(stage, finder.stage_path, slots, environment, suite, model)


def resolve_algorithm(recipe: Recipe, registry: Registry) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the slots of the first stage's algorithm, and the same as plain data; other sections are not looked up."""
    finder = Finder(recipe, registry, 0)
    _, slots, resolved = _algorithm(finder, finder.stage_dict.get("trainer") or {})
    return slots, resolved


def resolve_rewards(recipe: Recipe, registry: Registry) -> list[Reward]:
    """Return the rewards of the first stage."""
    return rewards_of(Finder(recipe, registry, 0))[0]


def _sections(finder: Finder, *, has_equation: bool) -> tuple[dict[str, Bound], dict[str, Any]]:
    """Return the sections that packages own, as parts and as plain data; one that needs an equation only with one."""
    sections: dict[str, Bound] = {}
    resolved: dict[str, Any] = {}
    given = finder.stage_dict
    owned = [key for key in given if key not in KEYS]
    for key in dict.fromkeys([*owned, *finder.registry.section_names(default=True)]):
        if key in given and given[key] is None:
            resolved[key] = None
            continue
        if not finder.registry.offers("rlm_sections", key):
            names = [*KEYS, *finder.registry.section_names()]
            where = finder.address(key)
            raise RecipeError(f"unknown key '{key}'", where=where, allowed=", ".join(names), hint=suggest(key, names))
        part = finder.registry.find("rlm_sections", key, where=finder.address(key))
        if getattr(part.target, "needs_equation", False) and not has_equation:
            continue
        sections[key] = part.bind(given.get(key) or {}, where=finder.address(key))
        sections[key].target.find_parts(finder.registry, finder.address(key))  # type: ignore[attr-defined]
        resolved[key] = pydantic_core.to_jsonable_python(sections[key].knobs, fallback=repr)
        finder.record_origin(resolved[key], (key,), f"default of {key}")
    return sections, resolved


def _settings(finder: Finder, trainer: Bound, values: Mapping[str, Any]) -> dict[str, Setting]:
    """Return the settings of packages that `trainer:` has, by name; a trainer with a loss of its own takes none."""
    if not needs_equation(trainer.target):
        return {}
    registered = finder.registry.names_of("rlm_settings")
    return {name: finder.registry.find("rlm_settings", name).target for name in values if name in registered}


def _model(finder: Finder) -> tuple[Bound | None, dict[str, Any]]:
    spec = dict(finder.stage_dict.get("model") or {})
    lora = spec.pop("lora", None)
    adapter = {} if lora is None else {"lora": lora}
    if not spec.get("name"):
        return None, adapter
    full = resolve_model_name(spec, finder.registry, finder.folder("model", "name"), finder.address("model"))
    finder.record_origin(full, ("model",), finder.recipe.origins[finder.address("model", "name")])
    bound, resolved = finder.part("model", full, ("model",))
    return bound, {**resolved, **adapter}


def _algorithm(finder: Finder, settings: Mapping[str, Any]) -> tuple[Bound, dict[str, Any], dict[str, Any]]:
    address, given = finder.address("algorithm"), finder.stage_dict["algorithm"]
    algorithm = finder.registry.find("rlm_algorithms", given["name"], where=address)
    where = f"{address} (algorithm {algorithm.name})"
    trainer = finder.registry.find("rlm_trainers", algorithm.target.trainer, where=where)
    slots: dict[str, Any] = {}
    resolved: dict[str, Any] = {"name": stable_name(algorithm)}
    merged = _merge(algorithm, given, finder)
    check_unused_slots(algorithm, trainer, merged, address)
    for slot, spec in merged.items():
        finder.record_origin(spec, ("algorithm", slot), f"algorithm {algorithm.name}")
        find: Any = finder.parts if slot in MANY else finder.optional_part
        slots[slot], resolved[slot] = find(slot, spec, ("algorithm", slot))
    check_needs(slots, address, provided=_provided(finder, trainer, settings, slots))
    return trainer.bind({}, where=address), slots, resolved


PartSpec = dict[str, Any]
"""``{name: …, knobs…}``"""


def _merge(algorithm: Part, overrides: Mapping[str, Any], finder: Finder) -> dict[str, Any]:
    """Return the parts of every slot, with the overrides applied: slot → part, None, or list of parts.

    Null empties a slot. Another ``name`` replaces the part and drops its knobs; knobs alone (or with the same name)
    override those of the algorithm's part. A list replaces the algorithm's list; a mapping overrides entries of it, by
    position or name.
    """
    slots: dict[str, Any] = {}
    for slot, choice in algorithm.target.slots().items():
        if slot in MANY:
            slots[slot] = _merged_list(slot, [_named(spec) for spec in _listed(choice)], overrides, finder)
        else:
            default = None if choice is None else _named(choice)
            slots[slot] = _merged_part(slot, default, overrides[slot], finder) if slot in overrides else default
    return slots


def _merged_list(slot: str, defaults: list[PartSpec], overrides: Mapping[str, Any], finder: Finder) -> list[PartSpec]:
    override = overrides.get(slot, {})
    if not isinstance(override, dict):
        return override or []
    merged = list(defaults)
    for step, part in override.items():
        index = position(defaults, step, finder.address("algorithm", slot))
        merged[index] = _merged_part(slot, defaults[index], part, finder)
        finder.move(("algorithm", slot, step), ("algorithm", slot, index))
    return merged


def _merged_part(slot: str, default: PartSpec | None, override: PartSpec | None, finder: Finder) -> Any:
    if override is None or (default is None and override.get("name")):
        return override
    if default is None:
        raise RecipeError(
            f"expected a part, got the knobs {', '.join(override) or '(none)'}: the algorithm has no part here",
            where=finder.address("algorithm", slot),
            hint=f"name one: `{slot}: {{name: …}}`",
        )
    name, find = override.get("name") or default["name"], finder.registry.find
    where = finder.address("algorithm", slot)
    if find(HOOK_OF[slot], default["name"], where=where) == find(HOOK_OF[slot], name, where=where):
        return {**default, **override, "name": default["name"]}
    return override


def _listed(choice: Spec | Sequence[Spec]) -> list[Any]:
    return list(choice) if isinstance(choice, Sequence) and not isinstance(choice, str) else [choice]


def _named(spec: Any) -> PartSpec:
    return {"name": spec} if isinstance(spec, str) else dict(spec)


def _provided(finder: Finder, trainer: Part, settings: Mapping[str, Any], slots: Mapping[str, Any]) -> set[str]:
    """Return the data of the batch that settings, sections and rollout sources of a stage provide."""
    given = finder.stage_dict
    owners: list[Any] = list(_settings(finder, trainer.bind({}), settings).values())
    keys = [key for key in given if key not in KEYS and given[key] is not None]
    keys = [key for key in keys if finder.registry.offers("rlm_sections", key)]
    for key in keys:
        part = finder.registry.find("rlm_sections", key, where=finder.address(key))
        owners.append(part.bind(given[key], where=finder.address(key)).target)
    return provided_data(owners, settings, slots["rollouts"])


def check_names(recipe: Recipe, registry: Registry) -> list[Stage]:
    """Check names, knobs and requirements of all stages, before torch is imported; return them."""
    with located(recipe):
        return [plan.stage for plan in plans_of(recipe, registry)]


@contextmanager
def located(recipe: Recipe, stage_path: Path = ()) -> Iterator[None]:
    """Add the line of the recipe to the address of an error, and prepend that of the stage at `stage_path`."""
    try:
        with prefixed_address(format_path(stage_path)):
            yield
    except RecipeError as error:
        located = recipe.locate(error)
        raise located from located.__cause__


def plans_of(recipe: Recipe, registry: Registry) -> list[Plan]:
    """Resolve the stages of a recipe, and check their names and requirements."""
    plans = [resolve(recipe, registry, number) for number in range(len(recipe.bodies))]
    for plan in plans:
        check_plan(plan, registry)
    _check_is_used(recipe, plans)
    check_earlier_stages(plans, registry)
    return plans


_LEAVE_OUT = "leave it out here"
_UNUSED = {
    "critic": (
        "no part of the algorithm requires `values`, so there is no critic",
        "`algorithm: ppo`, or `advantage: gae` with the penalty `value_loss`",
    ),
    **dict.fromkeys(("generator", "engine"), ("this trainer generates nothing", _LEAVE_OUT)),
}
"""Section → why a stage does not use it, and what to do."""
_OWN_LOSS = "the trainer of this stage has a loss of its own, which this section does not support", _LEAVE_OUT


def _check_is_used(recipe: Recipe, plans: Sequence[Plan]) -> None:
    """Check that a section that a stage may leave unused is used; if stages inherit it, by at least one of them."""
    owned = dict.fromkeys(key for body in recipe.bodies for key in body if key not in KEYS)
    for section in ("critic", *owned, "generator", "engine"):
        origin, used = recipe.origins.get(section), [plan.uses(section) for plan in plans]
        for plan, body in zip(plans, recipe.bodies, strict=True):
            where = plan.address(section)
            is_inherited = any(used) and origin is not None and recipe.origins.get(where) == origin
            if body.get(section) is not None and not plan.uses(section) and not is_inherited:
                problem, hint = _UNUSED.get(section, _OWN_LOSS)
                raise RecipeError(problem, where=where, hint=hint)


def check_earlier_stages(plans: Sequence[Plan], registry: Registry) -> None:
    """Check that the knob `stage` of a reward or data set names an earlier stage with the result that it requires."""
    for number, plan in enumerate(plans):
        target, name = plan.environment.target, plan.environment.knobs.get("stage")
        if isinstance(target, Produces):
            callbacks = [part.name for part in registry.parts_of("rlm_callbacks") if _leaves(part, target.produces)]
            problem = f"no stage '{name}' before this one keeps its {target.produces}"
            hint = f"add `callbacks: [{', '.join(callbacks)}]` to the stage '{name}'"
            _check_title(name, _keeping(plans[:number], target.produces), problem, plan.address("environment"), hint)
        for index, reward in enumerate(plan.stage.rewards):
            target, name = reward.part.target, reward.part.knobs.get("stage")
            if name is not None and isinstance(target, Produces):
                hint = f"add a stage before it with `algorithm: {target.produces}`, or set `path`"
                problem = f"the stage '{name}' does not exist"
                if name in _titles(plans):
                    problem = f"the stage '{name}' produces no {target.produces} before this one"
                producing = [plan for plan in plans[:number] if product_of(plan.stage.trainer) == target.produces]
                _check_title(name, producing, problem, plan.address("rewards", index), hint)


def _check_title(name: str, plans: Sequence[Plan], problem: str, where: str, hint: str) -> None:
    """Check that the knob `stage` of the part at `where` names one of these stages."""
    if name not in _titles(plans):
        allowed = ", ".join(sorted(plan.stage.name[3:] for plan in plans)) or "(none)"
        raise RecipeError(problem, where=f"{where}.stage", allowed=allowed, hint=nearest(name, _titles(plans)) or hint)


def _keeping(plans: Sequence[Plan], product: str) -> list[Plan]:
    """Return the stages of which a callback keeps a product."""
    return [plan for plan in plans if any(_leaves(callback, product) for callback in plan.stage.extensions.callbacks)]


def _leaves(callback: Part | Bound, product: str) -> bool:
    return isinstance(callback.target, Produces) and callback.target.produces == product


def _titles(plans: Iterable[Plan]) -> set[str]:
    """Return the names by which a recipe can refer to stages: with and without the number."""
    return {title for plan in plans for title in (plan.stage.name, plan.stage.name[3:])}
