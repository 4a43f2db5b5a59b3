"""Resolution of a stage: names become parts, algorithms are merged, every knob is explicit.

The second of the three checks: names, knobs, and the data that parts require. Nothing is built here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.recipe.algorithm_overrides import merge
from rlm_plugins.recipe.checks.critic import critic_of
from rlm_plugins.recipe.checks.data_needs import check_needs, check_takes_parts, reports_logprobs
from rlm_plugins.recipe.document import Recipe
from rlm_plugins.recipe.generator_section import generates, generator_of
from rlm_plugins.recipe.local_paths import absolute_settings
from rlm_plugins.recipe.model_names import in_full
from rlm_plugins.recipe.part_lookup import Finder, stable_name
from rlm_plugins.recipe.paths import Path
from rlm_plugins.recipe.ranges import check_values
from rlm_plugins.recipe.sections import MANY
from rlm_plugins.registry import Registry
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Measures
from rlm_plugins.rewards.process_pool import check_processes
from rlm_plugins.stage import NO_SPEED, CapsuleSettings, Critic, Evaluation, Reward, Speed


@dataclass
class Plan:
    """A stage with its parts bound.

    Args:
        name: ``01-sft``.
        place: Its address in the recipe.
        body: The same as plain data, with every value.
        engine: The trainer.
        environment: The environment part.
        model: The model part; None in a later stage.
        rewards: In the order of the recipe.
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        evaluation: None without rewards, or if the recipe turns it off.
        suite: Name → environment of a further held-out set.
        critic: None if no part requires one.
        speed: The optimizations that are on.
        generator: The decoding; None for a trainer that generates nothing.
        callbacks, capsule: As in :class:`rlm_plugins.stage.Stage`.
    """

    name: str
    place: Path
    engine: Bound
    environment: Bound
    model: Bound | None
    rewards: list[Reward]
    slots: dict[str, Any]
    evaluation: Evaluation | None
    suite: dict[str, Bound]
    critic: Critic | None
    speed: Speed
    generator: Bound | None
    callbacks: list[Bound]
    capsule: CapsuleSettings
    body: dict[str, Any] = field(repr=False)


def resolve(recipe: Recipe, registry: Registry, number: int) -> Plan:
    """Return stage `number` (from 0) of a recipe, resolved; `recipe.origins` gets the defaults.

    Raises:
        RecipeError: An unknown name, a wrong knob, or data that nothing provides.
    """
    own, place = recipe.bodies[number], recipe.places[number]
    finder = Finder(recipe, registry, place)
    generator, decoding, settings = generator_of(finder, own)
    settings = absolute_settings(settings, lambda name: finder.folder("trainer", name))
    own = {**own, "trainer": settings}
    title = own.get("name") or own["algorithm"]["name"].rpartition("/")[2]
    body: dict[str, Any] = {"name": title} if place else {}
    model, body["model"] = _model(finder, own)
    environment, body["environment"] = finder.part("environment", own["environment"], ("environment",))
    rewards, body["rewards"] = _rewards(finder, own.get("rewards") or [])
    engine, slots, body["algorithm"] = _algorithm(finder, own)
    critic, section = critic_of(finder, own.get("critic"), slots, body["model"].get("lora"))
    body |= section
    speed, section = _speed(finder, own.get("speed", {}), slots)
    body |= section
    if generates(engine):
        body["generator"] = decoding
    body["trainer"] = settings
    callbacks, body["callbacks"] = finder.several("callbacks", own.get("callbacks") or [], ("callbacks",))
    labels = _labels(finder, engine, rewards)
    evaluation, suite, body["evaluation"] = _evaluation(finder, own.get("evaluation", {}), labels)
    body |= {"on_divergence": own["on_divergence"]} if own.get("on_divergence") else {}
    body |= {"capsule": own["capsule"]} if own.get("capsule") else {}
    check_values(body, place)
    return Plan(
        name=f"{number + 1:02d}-{title}",
        place=place,
        engine=engine,
        environment=environment,
        model=model,
        rewards=rewards,
        slots=slots,
        evaluation=evaluation,
        suite=suite,
        critic=critic,
        speed=speed,
        generator=generator if generates(engine) else None,
        callbacks=callbacks,
        capsule=CapsuleSettings(**(own.get("capsule") or {})),
        body=body,
    )


def resolve_algorithm(recipe: Recipe, registry: Registry) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the slots of the first stage's algorithm, and the same as plain data; other sections are not looked up.

    Raises:
        RecipeError: An unknown name, a wrong knob, or data that nothing provides.
    """
    _, slots, plain = _algorithm(Finder(recipe, registry, recipe.places[0]), recipe.bodies[0])
    return slots, plain


def resolve_rewards(recipe: Recipe, registry: Registry) -> list[Reward]:
    """Return the rewards of the first stage.

    Raises:
        RecipeError: An unknown name or a wrong knob.
    """
    return _rewards(Finder(recipe, registry, recipe.places[0]), recipe.bodies[0].get("rewards") or [])[0]


def _speed(finder: Finder, said: Mapping[str, Any] | None, slots: Mapping[str, Any]) -> tuple[Speed, dict[str, Any]]:
    """Return the optimizations, and their section as plain data; none without an equation."""
    if slots.get("policy_loss") is None:
        return NO_SPEED, {}
    speed = NO_SPEED if said is None else Speed(**said)
    finder.note(vars(speed), ("speed",), "default")
    return speed, {"speed": dict(vars(speed))}


def _model(finder: Finder, said: Mapping[str, Any]) -> tuple[Bound | None, dict[str, Any]]:
    spec = dict(said.get("model") or {})
    lora = spec.pop("lora", None)
    adapter = {} if lora is None else {"lora": lora}
    if not spec.get("name"):
        return None, adapter
    full = in_full(spec, finder.registry, finder.folder("model", "name"), finder.address("model"))
    finder.note(full, ("model",), finder.recipe.origins[finder.address("model", "name")])
    bound, plain = finder.part("model", full, ("model",))
    return bound, {**plain, **adapter}


def _by_address(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a reward that is named by the address of a function as the part `trl`, labeled by the function's name."""
    place, colon, function = spec["name"].rpartition(":")
    if not (place and colon):
        return spec
    label = spec.get("as") or function.rpartition(".")[2]
    return {**spec, "name": "trl", "function": spec["name"], "as": label}


def _rewards(finder: Finder, said: list[dict[str, Any]]) -> tuple[list[Reward], list[dict[str, Any]]]:
    rewards: list[Reward] = []
    listed = []
    for i, spec in enumerate(map(_by_address, said)):
        bound, knobs = finder.part("rewards", spec, ("rewards", i))
        reward = Reward(
            spec.get("as") or spec["name"],
            bound,
            float(spec.get("weight", 1.0)),
            spec.get("on_error") or "stop",
            spec.get("timeout"),
            spec.get("processes"),
            spec.get("prefetch", True),
        )
        if reward.processes is not None:
            check_processes(bound, finder.address("rewards", i))
        if reward.label in [other.label for other in rewards]:
            raise RecipeError(
                f"two rewards have the label '{reward.label}'",
                where=finder.address("rewards", i),
                hint="give one of them another label: `as: …`",
            )
        plain = {"name": knobs.pop("name"), **knobs, "as": reward.label, "weight": reward.weight}
        plain["on_error"] = reward.on_error
        finder.note(plain, ("rewards", i), "default")
        rewards.append(reward)
        listed.append(plain)
    return rewards, listed


def _algorithm(finder: Finder, said: Mapping[str, Any]) -> tuple[Bound, dict[str, Any], dict[str, Any]]:
    here = finder.address("algorithm")
    row = finder.registry.find("rlm_algorithms", said["algorithm"]["name"], where=here)
    engine = finder.registry.find("rlm_trainers", row.target.trainer, where=f"{here} (algorithm {row.name})")
    slots: dict[str, Any] = {}
    plain: dict[str, Any] = {"name": stable_name(row)}
    merged = merge(row, said["algorithm"], finder)
    check_takes_parts(row, engine, merged, here)
    for slot, spec in merged.items():
        finder.note(spec, ("algorithm", slot), f"algorithm {row.name}")
        find: Any = finder.several if slot in MANY else finder.one
        slots[slot], plain[slot] = find(slot, spec, ("algorithm", slot))
    check_needs(slots, here, samples_elsewhere=reports_logprobs(said.get("trainer") or {}, slots["rollouts"]))
    return engine.bind({}, where=here), slots, plain


def _labels(finder: Finder, engine: Bound, rewards: list[Reward]) -> list[str]:
    """Return the metrics of a stage: the labels of its rewards, or the metrics of its trainer."""
    own: list[str] = list(engine.target.metrics) if isinstance(engine.target, Measures) else []
    if own and rewards:
        problem = f"the trainer '{engine.part.name}' trains on columns of the data set, and takes no rewards"
        hint = "set `rewards:` in the stages that use them, or `rewards: []` here"
        raise RecipeError(problem, where=finder.address("rewards"), hint=hint)
    return own or [reward.label for reward in rewards]


def _evaluation(
    finder: Finder, said: Mapping[str, Any] | None, labels: list[str]
) -> tuple[Evaluation | None, dict[str, Bound], dict[str, Any] | None]:
    """Return the evaluation, the environments of its suite, and its section as plain data."""
    if said is None or not labels:
        return None, {}, None
    chosen = Evaluation(**{"metric": labels[0], **{key: value for key, value in said.items() if value is not None}})
    if chosen.metric not in labels:
        raise RecipeError(
            f"unknown metric '{chosen.metric}'",
            where=finder.address("evaluation", "metric"),
            allowed=", ".join(labels),
            hint=nearest(chosen.metric, labels),
        )
    _check_evaluation(chosen, finder.address("evaluation"))
    finder.note(chosen.metric, ("evaluation", "metric"), "the first reward")
    finder.note(asdict(chosen), ("evaluation",), "default")
    suite, plain = {}, {}
    for name, spec in chosen.suite.items():
        suite[name], plain[name] = finder.part("environment", spec, ("evaluation", "suite", name))
    return chosen, suite, {**asdict(chosen), "suite": plain}


def _check_evaluation(evaluation: Evaluation, where: str) -> None:
    """Check that the keys of an evaluation have what they use."""
    if evaluation.k and max(evaluation.k) > evaluation.samples:
        problem = f"k of {max(evaluation.k)} requires as many samples, got `samples: {evaluation.samples}`"
        raise RecipeError(problem, where=f"{where}.k", hint=f"`samples: {max(evaluation.k)}` or more")
    for name, spec in evaluation.suite.items():
        if not isinstance(spec.get("name"), str):
            problem = f"expected an environment with a `name`, got {spec}"
            raise RecipeError(problem, where=f"{where}.suite.{name}", hint="as in `{name: addition, digits: 4}`")
    for key in ("keep", "stop"):
        if getattr(evaluation, key) not in ("last", 0) and not evaluation.every:
            problem = f"`{key}: {getattr(evaluation, key)}` requires evaluations during training"
            raise RecipeError(problem, where=f"{where}.{key}", hint="`every: 10` evaluates every 10 optimizer steps")
