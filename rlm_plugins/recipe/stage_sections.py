"""Resolution of the sections `rewards`, `generator`, `engine`, `evaluation` and `critic` of a stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rlm_plugins.equation.knobs import Schedule, as_recipe_value, read
from rlm_plugins.errors import RecipeError, nearest
from rlm_plugins.recipe.checks.part_needs import iter_parts
from rlm_plugins.recipe.part_lookup import Finder
from rlm_plugins.recipe.trainer_settings import LORA, kind_of
from rlm_plugins.registry.part import Bound
from rlm_plugins.registry.protocols import Evaluates, Measures, SetsTrainer
from rlm_plugins.rewards.processes import check_processes
from rlm_plugins.stage import Critic, Evaluation, Reward, Stage


def rewards_of(finder: Finder) -> tuple[list[Reward], list[dict[str, Any]]]:
    """Return the rewards of a stage, and their section as plain data with every default."""
    rewards: list[Reward] = []
    sections = []
    for i, spec in enumerate(map(_by_address, finder.stage_dict.get("rewards") or [])):
        bound, knobs = finder.part("rewards", spec, ("rewards", i))
        reward = Reward(
            spec.get("as") or spec["name"],
            bound,
            float(spec.get("weight", 1.0)),
            spec.get("on_error") or "stop",
            spec.get("timeout"),
            spec.get("processes"),
            spec.get("prefetch", True),
            spec.get("messages"),
        )
        if reward.processes is not None:
            check_processes(bound, finder.address("rewards", i))
        if reward.label in [existing.label for existing in rewards]:
            raise RecipeError(
                f"two rewards have the label '{reward.label}'",
                where=finder.address("rewards", i),
                hint="give one of them another label: `as: …`",
            )
        resolved = {"name": knobs.pop("name"), **knobs, "as": reward.label, "weight": reward.weight}
        resolved["on_error"] = reward.on_error
        finder.record_origin(resolved, ("rewards", i), "default")
        rewards.append(reward)
        sections.append(resolved)
    return rewards, sections


def labels_of(finder: Finder, trainer: Bound, rewards: list[Reward]) -> list[str]:
    """Return the metrics of a stage: the labels of its rewards, or the metrics of its trainer."""
    metrics: list[str] = list(trainer.target.metrics) if isinstance(trainer.target, Measures) else []
    if metrics and rewards:
        problem = f"the trainer '{trainer.part.name}' trains on columns of the data set, and takes no rewards"
        hint = "set `rewards:` in the stages that use them, or `rewards: []` here"
        raise RecipeError(problem, where=finder.address("rewards"), hint=hint)
    return metrics or [reward.label for reward in rewards]


def _by_address(spec: dict[str, Any]) -> dict[str, Any]:
    """Return a reward that is named by the address of a function as the part `trl`, labeled by the function's name."""
    module, colon, function = spec["name"].rpartition(":")
    if not (module and colon):
        return spec
    label = spec.get("as") or function.rpartition(".")[2]
    return {**spec, "name": "trl", "function": spec["name"], "as": label}


REFERENCE = "transformers"
"""The generator of a recipe with `none`, and without the section if the default is not installed."""
PLUGIN, DEFAULT, PACKAGE = "fast", "fast/fast", "rlm-fast"
"""The default generator, with its plugin and the package that has it."""
INSTALL = f"pip install ./plugins/{PACKAGE}"
"""The command that installs the default generator from a checkout."""


def generator_of(finder: Finder) -> tuple[Bound, dict[str, Any], dict[str, Any]]:
    """Return the part, its section as plain data, and `trainer:` with the settings that the part fixes."""
    given = finder.stage_dict
    installed = finder.registry.offers("rlm_generators", DEFAULT)
    name = DEFAULT if installed and "generator" not in given else REFERENCE
    spec = given.get("generator") or {"name": name}
    name = spec["name"]
    is_default = PLUGIN not in finder.registry.plugins and name in (DEFAULT, DEFAULT.rpartition("/")[2])
    if is_default and not (PLUGIN in finder.registry.blocked or finder.registry.offers("rlm_generators", name)):
        problem = f"the generator '{name}' requires the package {PACKAGE}, which is not installed"
        raise RecipeError(problem, where=finder.address("generator"), hint=f"{INSTALL}, or leave out `generator`")
    bound, resolved = finder.part("generator", spec, ("generator",))
    return bound, resolved, _with_fixed(finder, "generator", bound, given.get("trainer") or {})


ENGINE = "vllm"
"""The engine of a recipe with `use_vllm: true` and without the section."""


def engine_of(finder: Finder, settings: dict[str, Any]) -> tuple[Bound | None, dict[str, Any], dict[str, Any]]:
    """Return the engine, its section as plain data, and `trainer:` with the settings that it fixes."""
    spec = finder.stage_dict.get("engine") or ({"name": ENGINE} if settings.get("use_vllm") else None)
    bound, resolved = finder.optional_part("engine", spec, ("engine",))
    if bound is None:
        return None, {}, settings
    return bound, {"engine": resolved}, _with_fixed(finder, "engine", bound, settings)


def _with_fixed(finder: Finder, key: str, bound: Bound, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `trainer:` with the settings that a generator or an engine fixes."""
    target: Any = bound.target
    merged = dict(settings)
    for name, value in (target.trainer_settings if isinstance(target, SetsTrainer) else {}).items():
        if merged.setdefault(name, value) != value:
            problem = f"the {key} '{bound.part.name}' requires `{name}: {value}`, got {merged[name]}"
            where = finder.address("trainer", name)
            raise RecipeError(problem, where=where, hint=f"leave it out: it follows from the {key}")
        finder.record_origin(value, ("trainer", name), f"{key} {bound.part.name}")
    return merged


def generates(trainer: Bound) -> bool:
    """Return True if a stage of this trainer generates completions, in training or evaluation."""
    return not isinstance(trainer.target, Evaluates)


def evaluation_of(
    finder: Finder, labels: list[str]
) -> tuple[Evaluation | None, dict[str, Bound], dict[str, Any] | None]:
    """Return the evaluation, the environments of its suite, and its section as plain data."""
    given = finder.stage_dict.get("evaluation", {})
    if given is None or not labels:
        return None, {}, None
    evaluation = Evaluation(**{"metric": labels[0], **_non_null(given)})
    if evaluation.metric not in labels:
        raise RecipeError(
            f"unknown metric '{evaluation.metric}'",
            where=finder.address("evaluation", "metric"),
            allowed=", ".join(labels),
            hint=nearest(evaluation.metric, labels),
        )
    _check(evaluation, finder.address("evaluation"))
    finder.record_origin(evaluation.metric, ("evaluation", "metric"), "the first reward")
    finder.record_origin(asdict(evaluation), ("evaluation",), "default")
    suite, resolved = {}, {}
    for name, spec in evaluation.suite.items():
        suite[name], resolved[name] = finder.part("environment", spec, ("evaluation", "suite", name))
    return evaluation, suite, {**asdict(evaluation), "suite": resolved}


def _non_null(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section without the keys that are null, which have their defaults."""
    return {key: value for key, value in section.items() if value is not None}


def _check(evaluation: Evaluation, where: str) -> None:
    """Check that keys of the evaluation that depend on other keys have them."""
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


CRITIC_DATA = ("values", "old_values", "returns")
"""Data that only a batch with a critic has (`returns` are its targets)."""
_NEW_WEIGHTS = ("bias", "modules_to_save")
_NOT_INHERITED = (*_NEW_WEIGHTS, "lora_dropout")
"""Fields of the policy's adapter that a shared critic does not inherit."""
_EARLY = ("shapers", "filters", "advantage")


def critic_of(
    finder: Finder, slots: Mapping[str, Any], lora: Mapping[str, Any] | None
) -> tuple[Critic | None, dict[str, Any]]:
    """Return the critic, and its section as plain data; None and nothing if no part requires one."""
    parts = list(iter_parts(slots, finder.address("algorithm")))
    requiring = [(bound.part.name, where) for _, bound, where in parts if _names(bound, *CRITIC_DATA)]
    if not requiring:
        return None, {}
    if not any(_names(bound, "values") for slot, bound, _ in parts if slot not in _EARLY):
        name, where = requiring[0]
        problem = f"`{name}` requires a critic, but no loss term trains one: none names `values`"
        terms = [part.name for part in finder.registry.parts_of("rlm_penalties") if "values" in part.required_data]
        hint = f"add `{{name: {' or '.join(terms)}, beta: 1.0}}` to `algorithm.penalties`"
        raise RecipeError(problem, where=where, hint=hint)
    _check_trained_once(parts)
    settings = _non_null(finder.stage_dict.get("critic") or {})
    critic = Critic(
        kind=settings.get("kind") or ("shared" if lora is not None and kind_of(lora) == LORA else "separate"),
        lora=settings.get("lora"),
        learning_rate=_rate(settings.get("learning_rate"), finder.address("critic", "learning_rate")),
        max_grad_norm=float(settings.get("max_grad_norm", 1.0)),
        warmup_steps=settings.get("warmup_steps", 0),
    )
    _check_adapters(critic, lora, finder)
    if critic.kind == "shared" and critic.lora is None:
        inherited = {key: value for key, value in (lora or {}).items() if key not in _NOT_INHERITED}
        critic = Critic(**{**vars(critic), "lora": inherited})
    resolved = {
        key: as_recipe_value(value) for key, value in vars(critic).items() if key != "lora" or value is not None
    }
    finder.record_origin(resolved.get("lora"), ("critic", "lora"), "as the policy's")
    finder.record_origin(resolved, ("critic",), "default")
    return critic, {"critic": resolved}


def check_quantized(stage: Stage, critic: str, model: str) -> None:
    """Check that quantized weights are not copied by a critic or trained; `critic` and `model` are addresses."""
    if not getattr(stage.source.config, "quantization_config", None):
        return
    if stage.critic is not None and stage.critic.kind == "separate":
        problem = "a separate critic is a trained copy of the model, but the weights of this model are quantized"
        allowed = "`critic: {kind: shared}`, an adapter, or `{kind: head}`, a value head; both with `model.lora`"
        raise RecipeError(problem, where=critic, allowed=allowed)
    if stage.lora is None:
        hint = "add an adapter: `model: {lora: {r: 16, target_modules: all-linear}}`"
        raise RecipeError("quantized weights cannot be trained", where=model, hint=hint)


def _check_trained_once(parts: Sequence[tuple[str, Bound, str]]) -> None:
    """Check that no term of the loss trains the critic twice."""
    terms: list[tuple[str, Any]] = []
    for slot, bound, where in parts:
        term = bound.part.full_name, bound.options.get("source")
        if slot == "penalties" and _names(bound, "values"):
            if term in terms:
                problem = f"duplicate `{bound.part.name}`: the critic would be trained twice"
                raise RecipeError(problem, where=where, hint="keep one; its `beta` is its coefficient")
            terms.append(term)


def _names(bound: Bound, *names: str) -> bool:
    """Return True if a part requires one of these names."""
    return not {*names}.isdisjoint((*bound.part.required_data, *bound.part.update_required_data))


def _rate(value: Any, where: str) -> float | Schedule | None:
    if isinstance(value, Mapping):
        value = read(value, where)
    ends = (value.start, value.end) if isinstance(value, Schedule) else (value,)
    if any(end is not None and end < 0 for end in ends):
        raise RecipeError(f"expected 0 or more, got the number {min(ends)}", where=where)
    return value


def _check_adapters(critic: Critic, lora: Mapping[str, Any] | None, finder: Finder) -> None:
    where = finder.address("critic")
    if critic.kind != "shared" and critic.lora is not None:
        hint = "only the kind `shared` has an adapter of its own"
        raise RecipeError(f"a critic of the kind '{critic.kind}' has no adapter", where=f"{where}.lora", hint=hint)
    if critic.kind != "shared":
        return
    if dropout := (critic.lora or {}).get("lora_dropout"):
        problem = f"expected 0, got the number {dropout}: a critic has no dropout, so its values are reproducible"
        raise RecipeError(problem, where=f"{where}.lora.lora_dropout")
    reason = "all its weights are trained" if lora is None else ""
    if kind_of(lora) != LORA:
        reason = f"`model.lora.peft_type: {kind_of(lora)}` leaves no room for a second adapter"
    for key in (key for key in _NEW_WEIGHTS if (lora or {}).get(key) not in (None, "none", [])):
        reason = f"`model.lora.{key}` trains some of its weights"
    if reason:
        hint = "kinds for a trained base: `critic: {kind: separate}`, a copy, or `{kind: head}`, a value head"
        raise RecipeError(f"a shared critic requires a frozen base, but {reason}", where=where, hint=hint)
