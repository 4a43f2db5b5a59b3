"""Checks of the section `critic`, and its resolution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_plugins import schedule
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.adapter_kinds import LORA, kind_of
from rlm_plugins.recipe.checks.data_needs import iter_parts
from rlm_plugins.recipe.part_lookup import Finder
from rlm_plugins.registry.part import Bound
from rlm_plugins.schedule import Schedule
from rlm_plugins.specs import ModelSpec
from rlm_plugins.stage_settings import Critic

CRITIC_DATA = ("values", "old_values", "returns")
"""Data that only a batch with a critic has (`returns` are its targets)."""
_NEW_WEIGHTS = ("bias", "modules_to_save")
_NOT_INHERITED = (*_NEW_WEIGHTS, "lora_dropout")
"""Fields of the policy's adapter that a shared critic does not inherit."""
_EARLY = ("shapers", "filters", "advantage")
_REMEDY = "add `{name: value_loss, beta: 1.0}` to `algorithm.penalties`"


def critic_of(
    finder: Finder, section: Mapping[str, Any] | None, slots: Mapping[str, Any], lora: Mapping[str, Any] | None
) -> tuple[Critic | None, dict[str, Any]]:
    """Return the critic, and its section as plain data; None and nothing if no part requires one.

    Args:
        finder: Of the stage.
        section: The section ``critic:``.
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        lora: The policy's adapter.

    Raises:
        RecipeError: No loss term trains the critic, or the section does not fit the model.
    """
    parts = list(iter_parts(slots, finder.address("algorithm")))
    requiring = [(bound.part.name, where) for _, bound, where in parts if _names(bound, *CRITIC_DATA)]
    if not requiring:
        return None, {}
    if not any(_names(bound, "values") for slot, bound, _ in parts if slot not in _EARLY):
        name, where = requiring[0]
        problem = f"`{name}` requires a critic, but no loss term trains one: none names `values`"
        raise RecipeError(problem, where=where, hint=_REMEDY)
    _check_trained_once(parts)
    settings = {key: value for key, value in (section or {}).items() if value is not None}
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
    plain = {
        key: schedule.as_recipe_value(value)
        for key, value in vars(critic).items()
        if key != "lora" or value is not None
    }
    finder.record_origin(plain.get("lora"), ("critic", "lora"), "as the policy's")
    finder.record_origin(plain, ("critic",), "default")
    return critic, {"critic": plain}


def check_copied(critic: Critic | None, source: ModelSpec, where: str) -> None:
    """Check that the base model can be copied and trained, for a critic that is a copy.

    Args:
        critic: Of the stage.
        source: Source of its weights.
        where: Address of the section.

    Raises:
        RecipeError: The base is quantized.
    """
    if critic is not None and critic.kind == "separate" and getattr(source.config, "quantization_config", None):
        problem = "a separate critic is a trained copy of the model, but the weights of this model are quantized"
        allowed = "`critic: {kind: shared}`, an adapter, or `{kind: head}`, a value head; both with `model.lora`"
        raise RecipeError(problem, where=where, allowed=allowed)


def check_frozen(lora: Any, source: ModelSpec, where: str) -> None:
    """Check that quantized weights have an adapter to train.

    Args:
        lora: The adapter of the stage, or None.
        source: Source of its weights.
        where: Address of the model.

    Raises:
        RecipeError: The weights are quantized, and all are to be trained.
    """
    if lora is None and getattr(source.config, "quantization_config", None):
        hint = "add an adapter: `model: {lora: {r: 16, target_modules: all-linear}}`"
        raise RecipeError("quantized weights cannot be trained", where=where, hint=hint)


def _check_trained_once(parts: Sequence[tuple[str, Bound, str]]) -> None:
    """Check that no term of the loss trains the critic twice.

    Raises:
        RecipeError: The same term occurs twice, for the same completions.
    """
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
        value = schedule.read(value, where)
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
