"""The critic of a stage: whether its parts ask for one, and what the recipe says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlm_plugins import schedule
from rlm_plugins.errors import RecipeError
from rlm_plugins.recipe.checks.data_needs import standing
from rlm_plugins.recipe.part_lookup import Finder
from rlm_plugins.registry.part import Bound
from rlm_plugins.schedule import Schedule
from rlm_plugins.specs import ModelSpec
from rlm_plugins.stage import Critic

GIVEN = ("values", "old_values", "returns")
"""What a batch has only where there is a critic (`returns` without one would teach nobody)."""
_NEW_WEIGHTS = ("bias", "modules_to_save")
_NOT_TAKEN_OVER = (*_NEW_WEIGHTS, "lora_dropout")
"""What a shared critic's adapter does not take over from the policy's."""
_EARLY = ("shapers", "filters", "advantage")
_REMEDY = "add `{name: value_loss, beta: 1.0}` to `algorithm.penalties`"


def critic_of(
    finder: Finder, said: Mapping[str, Any] | None, slots: Mapping[str, Any], lora: Mapping[str, Any] | None
) -> tuple[Critic | None, dict[str, Any]]:
    """The critic, and the same as the recipe's section; nothing where no part asks for one.

    Args:
        finder: Of the stage.
        said: The section ``critic:``.
        slots: Key of ``algorithm:`` → part, None, or list of parts.
        lora: The policy's adapter.

    Raises:
        RecipeError: Parts read a critic that none teaches; or the section does not fit the model.
    """
    parts = list(standing(slots, finder.address("algorithm")))
    asking = [(bound.part.name, where) for _, bound, where in parts if _names(bound, *GIVEN)]
    if not asking:
        return None, {}
    if not any(_names(bound, "values") for slot, bound, _ in parts if slot not in _EARLY):
        name, where = asking[0]
        problem = f"{name} reads a critic, and no term of the loss teaches it: none names `values`"
        raise RecipeError(problem, where=where, hint=_REMEDY)
    _check_taught_once(parts)
    given = {key: value for key, value in (said or {}).items() if value is not None}
    critic = Critic(
        kind=given.get("kind") or ("separate" if lora is None else "shared"),
        lora=given.get("lora"),
        learning_rate=_rate(given.get("learning_rate"), finder.address("critic", "learning_rate")),
        max_grad_norm=float(given.get("max_grad_norm", 1.0)),
        warmup_steps=given.get("warmup_steps", 0),
    )
    _check_adapters(critic, lora, finder)
    if critic.kind == "shared" and critic.lora is None:
        own = {key: value for key, value in (lora or {}).items() if key not in _NOT_TAKEN_OVER}
        critic = Critic(**{**vars(critic), "lora": own})
    plain = {key: schedule.plain(value) for key, value in vars(critic).items() if key != "lora" or value is not None}
    finder.note(plain.get("lora"), ("critic", "lora"), "as the policy's")
    finder.note(plain, ("critic",), "default")
    return critic, {"critic": plain}


def check_copied(critic: Critic | None, source: ModelSpec, where: str) -> None:
    """Whether the base can be copied and trained, where the critic is such a copy.

    Args:
        critic: Of the stage.
        source: Where its weights come from.
        where: Address of the section.

    Raises:
        RecipeError: The base is quantised.
    """
    if critic is not None and critic.kind == "separate" and getattr(source.config, "quantization_config", None):
        problem = "a separate critic is a copy of the model that is trained, and the weights of this one are quantised"
        allowed = "`critic: {kind: shared}`, an adapter, or `{kind: head}`, a value head; both with `model.lora`"
        raise RecipeError(problem, where=where, allowed=allowed)


def _check_taught_once(parts: Sequence[tuple[str, Bound, str]]) -> None:
    """Whether no term of the loss teaches the critic twice.

    Raises:
        RecipeError: The same one does, on the same rows.
    """
    met: list[tuple[str, Any]] = []
    for slot, bound, where in parts:
        term = bound.part.full_name, bound.beside.get("source")
        if slot == "penalties" and _names(bound, "values"):
            if term in met:
                problem = f"{bound.part.name} stands here a second time: the critic would be taught twice"
                raise RecipeError(problem, where=where, hint="say it once; how much it counts is its `beta`")
            met.append(term)


def _names(bound: Bound, *names: str) -> bool:
    """Whether a part cannot do without one of these."""
    return not {*names}.isdisjoint((*bound.part.needs, *bound.part.update_needs))


def _rate(value: Any, where: str) -> float | Schedule | None:
    if isinstance(value, Mapping):
        value = schedule.read(value, where)
    ends = (value.start, value.end) if isinstance(value, Schedule) else (value,)
    if any(end is not None and end < 0 for end in ends):
        raise RecipeError(f"found {min(ends)}", where=where, allowed="0 or more")
    return value


def _check_adapters(critic: Critic, lora: Mapping[str, Any] | None, finder: Finder) -> None:
    where = finder.address("critic")
    if critic.kind != "shared" and critic.lora is not None:
        hint = "an adapter of its own has the kind `shared`"
        raise RecipeError(f"a critic of the kind '{critic.kind}' has no adapter", where=f"{where}.lora", hint=hint)
    if critic.kind != "shared":
        return
    if dropout := (critic.lora or {}).get("lora_dropout"):
        problem = f"found {dropout}, and a critic has no dropout: what it says and what it learns must be one reading"
        raise RecipeError(problem, where=f"{where}.lora.lora_dropout", allowed="0")
    moved = "all its weights are trained" if lora is None else ""
    for key in (key for key in _NEW_WEIGHTS if (lora or {}).get(key) not in (None, "none", [])):
        moved = f"`model.lora.{key}` trains weights of it"
    if moved:
        hint = "kinds for a base that moves: `critic: {kind: separate}`, a copy, or `{kind: head}`, a value head"
        raise RecipeError(f"a shared critic needs a frozen base, and {moved}", where=where, hint=hint)
