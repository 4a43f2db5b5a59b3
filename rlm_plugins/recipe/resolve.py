"""Resolution of a stage: names become parts, algorithms are merged, every knob is explicit.

The second of the three checks: names, knobs, and the data that parts require. Nothing is built here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pydantic_core

from rlm_plugins.errors import RecipeError
from rlm_plugins.glossary import suggest
from rlm_plugins.recipe.algorithm_overrides import merge
from rlm_plugins.recipe.checks.critic import critic_of
from rlm_plugins.recipe.checks.data_needs import check_needs, check_unused_slots, reports_logprobs
from rlm_plugins.recipe.checks.number_ranges import check_values
from rlm_plugins.recipe.document import Recipe
from rlm_plugins.recipe.evaluation_section import evaluation_of
from rlm_plugins.recipe.generator_section import generates, generator_of
from rlm_plugins.recipe.local_paths import absolute_settings
from rlm_plugins.recipe.model_names import resolve_model_name
from rlm_plugins.recipe.part_lookup import Finder, stable_name
from rlm_plugins.recipe.paths import Path
from rlm_plugins.recipe.reward_section import labels_of, rewards_of
from rlm_plugins.recipe.sections import KEYS, MANY
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import needs_equation
from rlm_plugins.registry.setting import Setting
from rlm_plugins.stage import Extensions
from rlm_plugins.stage_settings import Critic, Evaluation, Reward


@dataclass
class Plan:
    """A stage with its parts bound.

    Args:
        name: ``01-sft``.
        stage_path: Its address in the recipe.
        body: The same as plain data, with every value.
        trainer: The trainer.
        environment: The environment part.
        model: The model part; None in a later stage.
        rewards: In the order of the recipe.
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        evaluation: None without rewards, or if the recipe turns it off.
        suite: Name → environment of a further held-out set.
        critic: None if no part requires one.
        generator: The decoding; None for a trainer that generates nothing.
        extensions: As in :class:`rlm_plugins.stage.Stage`.
    """

    name: str
    stage_path: Path
    trainer: Bound
    environment: Bound
    model: Bound | None
    rewards: list[Reward]
    slots: dict[str, Any]
    evaluation: Evaluation | None
    suite: dict[str, Bound]
    critic: Critic | None
    generator: Bound | None
    extensions: Extensions
    body: dict[str, Any] = field(repr=False)


def resolve(recipe: Recipe, registry: Registry, number: int) -> Plan:
    """Return stage `number` (from 0) of a recipe, resolved; `recipe.origins` gets the defaults.

    Raises:
        RecipeError: An unknown name, a wrong knob, or data that nothing provides.
    """
    raw, stage_path = recipe.bodies[number], recipe.stage_paths[number]
    finder = Finder(recipe, registry, stage_path)
    generator, decoding, settings = generator_of(finder, raw)
    settings = absolute_settings(settings, lambda name: finder.folder("trainer", name))
    raw = {**raw, "trainer": settings}
    title = raw.get("name") or raw["algorithm"]["name"].rpartition("/")[2]
    body: dict[str, Any] = {"name": title} if stage_path else {}
    model, body["model"] = _model(finder, raw)
    environment, body["environment"] = finder.part("environment", raw["environment"], ("environment",))
    rewards, body["rewards"] = rewards_of(finder, raw.get("rewards") or [])
    trainer, slots, body["algorithm"] = _algorithm(finder, raw)
    critic, section = critic_of(finder, raw.get("critic"), slots, body["model"].get("lora"))
    body |= section
    if generates(trainer):
        body["generator"] = decoding
    body["trainer"] = settings
    callbacks, body["callbacks"] = finder.part_list("callbacks", raw.get("callbacks") or [], ("callbacks",))
    observers, plain = finder.part_list("observers", raw.get("observers") or [], ("observers",))
    body |= {"observers": plain} if plain else {}
    sections, plain_sections = _sections(finder, raw, has_equation=slots.get("policy_loss") is not None)
    added = _settings(finder, trainer, settings)
    labels = labels_of(finder, trainer, rewards)
    evaluation, suite, body["evaluation"] = evaluation_of(finder, raw.get("evaluation", {}), labels)
    body |= {"on_divergence": raw["on_divergence"]} if raw.get("on_divergence") else {}
    body |= plain_sections
    check_values(body, stage_path)
    return Plan(
        name=f"{number + 1:02d}-{title}",
        stage_path=stage_path,
        trainer=trainer,
        environment=environment,
        model=model,
        rewards=rewards,
        slots=slots,
        evaluation=evaluation,
        suite=suite,
        critic=critic,
        generator=generator if generates(trainer) else None,
        extensions=Extensions(callbacks, observers, sections, added),
        body=body,
    )


def resolve_algorithm(recipe: Recipe, registry: Registry) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the slots of the first stage's algorithm, and the same as plain data; other sections are not looked up.

    Raises:
        RecipeError: An unknown name, a wrong knob, or data that nothing provides.
    """
    _, slots, plain = _algorithm(Finder(recipe, registry, recipe.stage_paths[0]), recipe.bodies[0])
    return slots, plain


def resolve_rewards(recipe: Recipe, registry: Registry) -> list[Reward]:
    """Return the rewards of the first stage.

    Raises:
        RecipeError: An unknown name or a wrong knob.
    """
    return rewards_of(Finder(recipe, registry, recipe.stage_paths[0]), recipe.bodies[0].get("rewards") or [])[0]


def _sections(finder: Finder, raw: Mapping[str, Any], *, has_equation: bool) -> tuple[dict[str, Bound], dict[str, Any]]:
    """Return the sections that packages own, and the same as plain data: those of the recipe, and default ones.

    One that needs an equation is left out of a stage without one.

    Raises:
        RecipeError: No plugin owns a section, or it has an unknown key.
    """
    sections: dict[str, Bound] = {}
    plain: dict[str, Any] = {}
    owned = [key for key in raw if key not in KEYS]
    for key in dict.fromkeys([*owned, *finder.registry.section_names(default=True)]):
        if key in raw and raw[key] is None:
            plain[key] = None
            continue
        if not finder.registry.offers("rlm_sections", key):
            names = [*KEYS, *finder.registry.section_names()]
            where = finder.address(key)
            raise RecipeError(f"unknown key '{key}'", where=where, allowed=", ".join(names), hint=suggest(key, names))
        part = finder.registry.find("rlm_sections", key, where=finder.address(key))
        if getattr(part.target, "needs_equation", False) and not has_equation:
            continue
        sections[key] = part.bind(raw.get(key) or {}, where=finder.address(key))
        plain[key] = pydantic_core.to_jsonable_python(sections[key].knobs, fallback=repr)
        finder.record_origin(plain[key], (key,), f"default of {key}")
    return sections, plain


def _settings(finder: Finder, trainer: Bound, values: Mapping[str, Any]) -> dict[str, Setting]:
    """Return the settings of packages that `trainer:` has, by name; a trainer with a loss of its own takes none."""
    if not needs_equation(trainer.target):
        return {}
    registered = finder.registry.names_of("rlm_settings")
    return {name: finder.registry.find("rlm_settings", name).target for name in values if name in registered}


def _model(finder: Finder, body: Mapping[str, Any]) -> tuple[Bound | None, dict[str, Any]]:
    spec = dict(body.get("model") or {})
    lora = spec.pop("lora", None)
    adapter = {} if lora is None else {"lora": lora}
    if not spec.get("name"):
        return None, adapter
    full = resolve_model_name(spec, finder.registry, finder.folder("model", "name"), finder.address("model"))
    finder.record_origin(full, ("model",), finder.recipe.origins[finder.address("model", "name")])
    bound, plain = finder.part("model", full, ("model",))
    return bound, {**plain, **adapter}


def _algorithm(finder: Finder, body: Mapping[str, Any]) -> tuple[Bound, dict[str, Any], dict[str, Any]]:
    address = finder.address("algorithm")
    algorithm = finder.registry.find("rlm_algorithms", body["algorithm"]["name"], where=address)
    where = f"{address} (algorithm {algorithm.name})"
    trainer = finder.registry.find("rlm_trainers", algorithm.target.trainer, where=where)
    slots: dict[str, Any] = {}
    plain: dict[str, Any] = {"name": stable_name(algorithm)}
    merged = merge(algorithm, body["algorithm"], finder)
    check_unused_slots(algorithm, trainer, merged, address)
    for slot, spec in merged.items():
        finder.record_origin(spec, ("algorithm", slot), f"algorithm {algorithm.name}")
        find: Any = finder.part_list if slot in MANY else finder.optional_part
        slots[slot], plain[slot] = find(slot, spec, ("algorithm", slot))
    settings = body.get("trainer") or {}
    provided = {name for setting in _settings(finder, trainer.bind({}), settings).values() for name in setting.provides}
    known = reports_logprobs(settings, slots["rollouts"]) or "rollout_logp" in provided
    check_needs(slots, address, samples_elsewhere=known)
    return trainer.bind({}, where=address), slots, plain
